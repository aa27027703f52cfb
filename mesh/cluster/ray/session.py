"""Connections to a Ray cluster, and what is left of them where its head does not answer."""

import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from mesh.addresses import runtime_dir
from mesh.cluster.ray.settings import KEEPER, RAY_SETTINGS
from mesh.cluster.reports import ClusterReport, not_running
from mesh.cluster.seen import remember
from mesh.errors import CommandError, UserError
from mesh.topology.schema import Topology

AUTO, LOCAL = "auto", "local"
REACH_S = 3.0  # for a head to take a connection: Ray itself tries for minutes
REPORT_S = 10.0


class UnreachableError(CommandError):
    """Ray does not answer. The mesh may serve all the same."""


def namespace_of(topology: Topology) -> str:
    """Return the Ray namespace of a mesh: meshes of other names have actors of the same names."""
    return f"meshserve-{topology.name}"


def import_ray() -> Any:
    """Return the library. Raise `UserError` if it is not installed."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError('Ray is not installed; `pip install "meshserve[ray]"` adds it') from None
    return ray


def connect(topology: Topology) -> Any:
    """Connect this process to the cluster of a topology, and return the library. Raise `UnreachableError`."""
    ray = import_ray()
    if ray.is_initialized():
        return ray
    address = _address(topology)
    require_answer(address, str(topology.path))
    try:
        ray.init(address=address, namespace=namespace_of(topology), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(str(topology.path), address, str(error).partition("\n")[0]) from None
    return ray


def find_keeper(topology: Topology) -> Any | None:
    """Return the actor that keeps the hosts of a mesh; None: there is none. Raise `UnreachableError`."""
    ray = connect(topology)
    try:
        return ray.get_actor(KEEPER, namespace=namespace_of(topology))
    except ValueError:
        return None


def find_report(topology: Topology) -> ClusterReport | None:
    """Return what the keeper knows of its hosts; None: the mesh does not run. Raise `UnreachableError`."""
    keeper = find_keeper(topology)
    if keeper is None:
        return None
    ray = import_ray()
    from mesh.cluster.ray.asking import ask

    try:
        report: ClusterReport | None = ask(keeper, "report", timeout_s=REPORT_S)
    except ray.exceptions.RayError:
        raise UnreachableError(
            f"{topology.path}: the keeper of the mesh does not answer within {REPORT_S:g} s"
        ) from None
    if report is not None:
        remember(topology, report)
    return report


def wake(topology: Topology, process: str) -> None:
    """Have Ray hold the host of an engine, if it is on standby. Raise `UnreachableError`."""
    keeper, ray = find_keeper(topology), import_ray()
    if keeper is None:
        return
    from mesh.cluster.ray.asking import ask

    try:
        ask(keeper, "want", process, timeout_s=REPORT_S)
    except ray.exceptions.RayError:
        raise UnreachableError(f"{topology.path}: the keeper of the mesh does not answer") from None


def find_hosts(topology: Topology) -> dict[str, Any]:
    """Return the actors of the hosts that Ray holds now. Raise `CommandError` if the mesh does not run."""
    report = find_report(topology)
    if report is None:
        raise not_running(topology)
    ray = import_ray()
    return {
        host.host: ray.get_actor(host.host, namespace=namespace_of(topology))
        for host in report.hosts
        if host.place is not None
    }


def address_file(topology: Topology) -> Path:
    """Return where the address of a cluster of this machine alone is kept."""
    return runtime_dir(topology) / "ray.address"


def _address(topology: Topology) -> str:
    assert topology.cluster is not None
    address = topology.cluster.address
    if address == LOCAL:
        try:
            return address_file(topology).read_text()
        except OSError:
            raise not_running(topology) from None
    if address == AUTO:
        return last_started() or AUTO
    return address


def last_started() -> str | None:
    """The address that the environment names, or where `ray start` of this machine has written that of its cluster."""
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    folder = os.environ.get("RAY_TMPDIR", "/tmp")  # Ray's
    with suppress(OSError):
        return (Path(folder) / "ray" / "ray_current_cluster").read_text().strip()
    return None


def require_answer(address: str, asker: str) -> None:
    """Raise `UnreachableError` if nobody listens there. ``asker``: what the error begins with."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        except OSError as error:
            raise _unreachable(asker, address, error.strerror or str(error)) from None


def _unreachable(asker: str, address: str, reason: str) -> UnreachableError:
    return UnreachableError(f"{asker}: no Ray cluster answers at {address!r}: {reason}")
