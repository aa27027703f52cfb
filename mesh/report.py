"""Statuses of processes, folded into what ``mesh status --json`` prints and the feed tells."""

from collections.abc import Container, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec

from mesh.addresses import seats
from mesh.cluster.reports import HostReport
from mesh.topology.schema import EngineSpec, GatewaySpec, PlacementSpec, Topology
from mesh.wire.control import ProcessState
from mesh.wire.messages import BroadcastMessage
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import ChildStatus, EngineStatus, GatewayStatus, ServiceStatus, SupervisorStatus, TierStatus


def report(
    topology: Topology, statuses: Mapping[str, BroadcastMessage], hosts: Sequence[HostReport] = ()
) -> dict[str, Any]:
    """Every process of the topology, whether it was heard or not. ``hosts``: those that a cluster's engine holds."""
    statuses = {**_servers(statuses), **statuses}
    heard = [status for status in statuses.values() if isinstance(status, SupervisorStatus)]
    supervisors = sorted(heard, key=lambda status: status.host)
    away = {host for supervisor in supervisors for host in supervisor.away}
    waiting = [
        ChildStatus(spec.id, "engine", None, "standby", 0, None) for spec in topology.engines if spec.host in away
    ]
    children = _children(topology, [*waiting, *(child for supervisor in supervisors for child in supervisor.children)])
    daemon = topology.placement
    return {
        "mesh": topology.name,
        "topology": str(topology.path),
        "gateways": [
            {**_gateway(spec, statuses.get(name), children.get(name)), "id": name}
            for spec in topology.gateways
            for name in seats(spec.id)
            if name == spec.id or name in statuses  # the second one while it leaves to a successor
        ],
        "engines": [
            {**_engine(spec, statuses.get(spec.id), children.get(spec.id)), "breakers": _breakers(spec.id, statuses)}
            for spec in topology.engines
        ],
        "placement": None if daemon is None else _placement(daemon, statuses.get(daemon.id), children.get(daemon.id)),
        "hosts": [_host(host, {status.host for status in supervisors}) for host in hosts],
        "supervisors": [{"host": s.host, "pid": s.pid, "stopping": s.stopping} for s in supervisors],
    }


def _servers(statuses: Mapping[str, BroadcastMessage]) -> dict[str, BroadcastMessage]:
    """Servers that others run, as the gateway sees them that has most there."""
    seen = [status.servers for status in statuses.values() if isinstance(status, GatewayStatus)]
    found = sorted((pair for servers in seen for pair in servers.items()), key=lambda pair: pair[1].num_tokens)
    return dict(found)


def named_in_topology(topology: Topology, statuses: Mapping[str, BroadcastMessage]) -> dict[str, BroadcastMessage]:
    """Each gateway under its own name, whichever it has in the mesh; one that leaves under that of a successor."""
    named = dict(statuses)
    for gateway in topology.gateways:
        first, second = seats(gateway.id)
        incarnations = [named.pop(seat) for seat in (first, second) if seat in named]
        named |= zip((first, second), sorted(incarnations, key=_is_leaving), strict=False)
    return named


def _is_leaving(status: BroadcastMessage) -> bool:
    return isinstance(status, GatewayStatus) and status.state is ProcessState.DRAINING


def _host(host: HostReport, heard: Container[str]) -> dict[str, Any]:
    return {
        "id": host.host,
        "state": host.state,
        "address": host.place.address if host.place is not None else None,
        "supervisor": "heard" if host.host in heard else "silent",
        "problem": host.problem or None,
    }


def _children(topology: Topology, heard: Sequence[ChildStatus]) -> dict[str, ChildStatus]:
    """By name in the topology; of a gateway that has a successor the one that leaves is under the other name."""
    children = {child.process: child for child in heard}
    for gateway in topology.gateways:
        incarnations = [children.pop(seat) for seat in seats(gateway.id) if seat in children]
        children |= zip(
            seats(gateway.id), sorted(incarnations, key=lambda child: child.state == "leaving"), strict=False
        )
    return children


def _gateway(spec: GatewaySpec, status: BroadcastMessage | None, child: ChildStatus | None) -> dict[str, Any]:
    heard = status if isinstance(status, GatewayStatus) else None
    return {
        **_process(spec, heard, child),
        "url": heard.url if heard else f"{spec.scheme}://{spec.address}:{spec.port}",
        "admin_url": heard.admin_url if heard else None,
        "requests": heard.num_requests if heard else None,
        "waiting": heard.num_waiting if heard else None,
        "policy": heard.policy.name if heard and heard.policy else None,
        "policy_parameters": heard.policy.parameters if heard and heard.policy else None,
        "policy_version": heard.policy.version if heard and heard.policy else None,
        "error": None,
    }


def _engine(spec: EngineSpec, status: BroadcastMessage | None, child: ChildStatus | None) -> dict[str, Any]:
    heard = status if isinstance(status, EngineStatus) else None
    services = heard.services if heard else []
    named = [_service(service) for service in services] if heard else [{"name": name} for name in spec.services]
    is_unreachable = heard is None and spec.server is not None
    return {
        **_process(spec, heard, child),
        **({"state": "unreachable"} if is_unreachable else {}),
        "role": str(heard.role if heard else spec.role),
        "services": named,
        "num_blocks": sum(service.num_blocks for service in services) if heard else None,
        "free_blocks": sum(service.num_free_blocks for service in services) if heard else None,
        "block_size": spec.block_size,
        "running": heard.num_running if heard else None,
        "waiting": heard.num_waiting if heard else None,
        "tokens": heard.num_tokens if heard else None,
        "reserved": heard.num_reserved if heard else None,
        "preemptions": heard.preemptions_total if heard else None,
        "offloaded": heard.num_offloaded if heard else None,
        "slices_kept": heard.slices_kept_total if heard else None,
        "slices_moved": heard.slices_moved_total if heard else None,
        "slices_offloaded": heard.slices_offloaded_total if heard else None,
        "migrating_out": heard.num_migrating_out if heard else None,
        "migrating_in": heard.num_migrating_in if heard else None,
        "migrations": heard.migrations_total if heard else None,
        "migrations_aborted": heard.migrations_aborted_total if heard else None,
        "last_aborted_migration": heard.last_aborted_migration if heard else None,
        "cancelled": heard.cancelled_total if heard else None,
        "max_running": heard.max_running or None if heard else None,
        "loading": list(heard.loading) if heard else [],
        "adapters": list(heard.adapters) if heard else [],
        "tiers": {one.name: _tier(one) for one in heard.tiers} if heard else {},
        "blocks_not_stored": heard.blocks_not_stored_total if heard else None,
        "loads_stopped": heard.loads_stopped_total if heard else None,
        "prefill_backlog_s": heard.prefill_remaining_s + heard.prefill_waiting_s if heard else None,
        "decode_step_s": heard.decode_step_s if heard else None,
        "slack_s": heard.min_slack_s if heard else None,
        "failed_loads": {one.service: one.reason for one in heard.failed_loads} if heard else {},
        "error": heard.error if heard else None,
    }


def _tier(tier: TierStatus) -> dict[str, Any]:
    """What an engine has done with a KV tier."""
    return {key: value for key, value in msgspec.structs.asdict(tier).items() if key != "name"}


def _placement(spec: PlacementSpec, status: BroadcastMessage | None, child: ChildStatus | None) -> dict[str, Any]:
    """The placement daemon; what it decided is in ``mesh plan --json``."""
    heard = status if isinstance(status, PlacementStatus) else None
    return {
        **_process(spec, heard, child),
        "mode": str(spec.mode),
        "doing": heard.doing if heard else None,
        "plan": heard.plan if heard else None,
        "next_decision_s": heard.next_decision_s if heard else None,
        "last_verdict": heard.decision.verdict if heard and heard.decision else None,
        "changes": heard.changes_total if heard else None,
        "changes_failed": heard.changes_failed_total if heard else None,
        "error": heard.error if heard else None,
        "pools": [msgspec.to_builtins(pool) for pool in heard.pools] if heard else [],
    }


def _service(status: ServiceStatus) -> dict[str, Any]:
    """Costs in seconds, as the engine has learnt them; ``freeness`` is None where everything is to leave."""
    return {
        "name": status.name,
        "num_blocks": status.num_blocks,
        "free_blocks": status.num_free_blocks,
        "block_size": status.block_size,
        "running": status.num_running,
        "freeness": status.freeness if isfinite(status.freeness) else None,
        "prefill_cost": msgspec.to_builtins(status.prefill_cost),
        "decode_cost": msgspec.to_builtins(status.decode_cost),
        "prefill_error": status.prefill_error,
        "decode_error": status.decode_error,
    }


def _breakers(engine: str, statuses: Mapping[str, BroadcastMessage]) -> dict[str, str]:
    """By gateway, where the engine's circuit breaker is not closed."""
    return {
        gateway: status.breakers[engine]
        for gateway, status in sorted(statuses.items())
        if isinstance(status, GatewayStatus) and engine in status.breakers
    }


def _process(
    spec: EngineSpec | GatewaySpec | PlacementSpec,
    heard: EngineStatus | GatewayStatus | PlacementStatus | None,
    child: ChildStatus | None,
) -> dict[str, Any]:
    return {
        "id": spec.id,
        "host": spec.host,
        "pid": heard.pid if heard else (child.pid if child else None),
        "state": _state(heard, child),
        "restarts": child.num_restarts if child else None,
        "last_exit": child.last_exit if child else None,
    }


def _state(heard: EngineStatus | GatewayStatus | PlacementStatus | None, child: ChildStatus | None) -> str:
    """What the process says of itself, else what its supervisor knows; silent: it runs and says nothing."""
    if heard is not None:
        return str(heard.state)
    if child is None:
        return "unknown"
    return "silent" if child.state == "running" else child.state
