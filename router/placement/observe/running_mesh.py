"""A running mesh as the search sees it: engines as groups that stay as they are, with the costs that they learnt.

Weights are counted apart, because what an engine has for KV is apart from them. And engines of a size may have more or
less for KV. So whether the longest requests of services fit is asked in parts of an engine's KV memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from engines.costs.profiles import EngineProfile
from mesh.wire.control import EnginePlace, ProcessState
from mesh.wire.status import EngineStatus, ServiceStatus
from router.placement.change.obstacles import Obstacles
from router.placement.observe.requirements import Catalogue, Cluster, Footprint, Measure
from router.placement.observe.roster import served
from router.placement.search.plan import Group, Plan
from router.placement.search.span import DeviceSpan

KV_UNITS = 2**40  # of one device: so fine that rounding does not matter
USUAL_TOKEN_BYTES = 2**17  # of KV, where an engine does not tell: as of Llama 3 8B
PERCENT = Measure("% of a device's KV memory", KV_UNITS / 100, "its longest requests")


def present_plan(statuses: Mapping[str, EngineStatus]) -> Plan:
    """Return what the engines hold and do; its number is that of the newest plan that any of them knows."""
    ready = {engine: status for engine, status in sorted(statuses.items()) if status.state is ProcessState.READY}
    groups = [
        Group(engine, status.host, index, status.num_devices, tuple(sorted(served(status))), status.role)
        for index, (engine, status) in enumerate(ready.items())
    ]
    number = max((status.place.number for status in ready.values() if status.place is not None), default=0)
    return Plan(tuple(groups), number)


def waiting(present: Mapping[str, int], statuses: Iterable[EngineStatus]) -> dict[str, int]:
    """Return those of the requests of each service that are ``present`` which no engine has begun."""
    running = Counter[str]()
    for status in statuses:
        running.update({service.name: service.num_running for service in status.services})
    return {name: max(0, number - running[name]) for name, number in present.items()}


def places(plan: Plan) -> dict[str, EnginePlace]:
    """Return the places by engine, as `router.placement.change.changeover` carries them out."""
    num_engines = len(plan.groups)
    return {group.id: EnginePlace(plan.number, num_engines, group.services, group.role) for group in plan.groups}


def cluster_of(plan: Plan, spans: tuple[DeviceSpan, ...] = ()) -> Cluster:
    return Cluster({}, plan.groups, spans)


def catalogue_of(statuses: Iterable[EngineStatus], longest: Mapping[str, int], max_sharing: int) -> Catalogue:
    """Make the catalogue of a running mesh. ``longest``: tokens of the longest request of each service that matters.

    A service costs as on the first engine of that size that holds it.
    """
    footprints: dict[str, dict[int, Footprint]] = {}
    for status in statuses:
        for service in status.services:
            if service.name in longest:
                by_size = footprints.setdefault(service.name, {})
                by_size.setdefault(status.num_devices, _footprint(service, status.num_devices, longest[service.name]))
    return Catalogue(footprints, KV_UNITS, max_sharing, PERCENT)


def with_weights(
    catalogue: Catalogue, obstacles: Obstacles, present: Plan, spans: Iterable[DeviceSpan] = ()
) -> Catalogue:
    """The same for engines that have a limit for weights, those of ``spans`` included."""
    here = {group.id for group in present.groups}
    others = [group for span in spans for group in span.groups if group.id not in here]
    limits = obstacles.roomiest(Plan((*present.groups, *others)))
    return replace(catalogue, weights=obstacles.weights, weight_limits=limits)


def _footprint(service: ServiceStatus, num_devices: int, longest: int) -> Footprint:
    token_bytes = service.block_bytes // service.block_size or USUAL_TOKEN_BYTES
    profile = EngineProfile(
        f"{service.name}, learnt",
        service.prefill_cost,
        service.decode_cost,
        kv_bytes_per_token=token_bytes,
        kv_memory_bytes=token_bytes * max(1, service.num_blocks * service.block_size),
        source="learnt by engines",
        num_devices=num_devices,
    )
    return in_parts(profile, longest)


def in_parts(profile: EngineProfile, longest: int) -> Footprint:
    """Return the footprint of a service on a running engine, which has these bytes for KV beside its weights.
    ``longest``: tokens of its longest request.
    """
    num_tokens = max(1, profile.kv_memory_bytes // profile.kv_bytes_per_token)
    kv_parts = -(-longest * KV_UNITS * profile.num_devices // num_tokens)
    return Footprint(replace(profile, weight_bytes=0), kv_parts)
