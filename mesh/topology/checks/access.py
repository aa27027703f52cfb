"""Checks what must hold of those who may use the gateways."""

from collections.abc import Iterable
from ipaddress import ip_address

from mesh.access.keys import UNLIMITED
from mesh.topology.lines import KeyPath
from mesh.topology.report import Report
from mesh.topology.schema import AccessSpec, EngineSpec, GatewaySpec, Topology

WANTED = 'write keys = "keys.json" under [access] and make keys with `mesh keys add`, or open = true there'


def check_access(topology: Topology, processes: Iterable[tuple[KeyPath, object]], report: Report) -> None:
    if topology.access is not None:
        _check_table(topology.access, report)
        return
    for table, spec in dict(processes).items():
        for key, address in _addresses(spec).items():
            if not is_loopback(address):
                problem = f"{address} lets other machines in, and nothing says who may come"
                report.add((*table, key), f"{problem}; {WANTED}")


def _addresses(spec: object) -> dict[str, str]:
    """Where a process lets others in, by key."""
    match spec:
        case GatewaySpec():
            return {"address": spec.address, "admin_address": spec.admin_address}
        case EngineSpec():
            return {"metrics_address": spec.metrics_address}
    return {}


def _check_table(access: AccessSpec, report: Report) -> None:
    if access.keys is None and not access.open:
        report.add(("access",), 'does not say who may come; write keys = "keys.json", or open = true for everybody')
    if access.keys is not None and access.open:
        report.add(("access", "open"), "everybody may come, so keys are for nobody; leave out one of the two")
    if access.keys is None and access.defaults != UNLIMITED:
        report.add(("access",), 'limits are those of keys, and there are none; write keys = "keys.json"')


def is_loopback(address: str) -> bool:
    """Return whether only this machine can connect there. A name other than localhost may mean anything."""
    if address == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def is_on_this_machine(topology: Topology) -> bool:
    """Return whether all hosts are here, so that files that are not here are nowhere."""
    return topology.cluster is None and all(is_loopback(host.address) for host in topology.hosts)
