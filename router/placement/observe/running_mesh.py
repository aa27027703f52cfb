"""A running mesh as the search sees it: engines as groups that stay as they are, with the costs that they learnt.

Weights are counted apart, because what an engine has for KV is apart from them, and stays as much whatever it holds.
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

USUAL_TOKEN_BYTES = 2**17  # of KV, where an engine does not tell: as of Llama 3 8B
SIGNIFICANT_BITS = 6  # of an engine's bytes for KV: those that differ by a fiftieth are alike


def present_plan(statuses: Mapping[str, EngineStatus]) -> Plan:
    """Return what the engines hold and do; its number is that of the newest plan that any of them knows."""
    ready = {engine: status for engine, status in sorted(statuses.items()) if status.state is ProcessState.READY}
    groups = [
        Group(
            engine,
            status.host,
            index,
            status.num_devices,
            tuple(sorted(served(status))),
            status.role,
            kv_bytes_of(status),
        )
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
    device_bytes = 1
    for status in statuses:
        device_bytes = max(device_bytes, (kv_bytes_of(status) or 0) // status.num_devices)
        for service in status.services:
            if service.name in longest:
                by_size = footprints.setdefault(service.name, {})
                profile = _profile(service, status.num_devices)
                by_size.setdefault(status.num_devices, Footprint(profile, profile.kv_bytes(longest[service.name])))
    measure = Measure("% of a device's KV memory", device_bytes / 100, "its longest requests")
    return Catalogue(footprints, device_bytes, max_sharing, measure)


def with_weights(
    catalogue: Catalogue, obstacles: Obstacles, present: Plan, spans: Iterable[DeviceSpan] = ()
) -> Catalogue:
    """The same for engines that have a limit for weights, those of ``spans`` included."""
    here = {group.id for group in present.groups}
    others = [group for span in spans for group in span.groups if group.id not in here]
    limits = obstacles.roomiest(Plan((*present.groups, *others)))
    return replace(catalogue, weights=obstacles.weights, weight_limits=limits)


def kv_bytes_of(status: EngineStatus) -> int | None:
    """Return what an engine has for KV; None: it holds nothing that tells."""
    found = [_profile(service, status.num_devices).kv_memory_bytes for service in status.services]
    return rounded(max(found)) if found else None


def rounded(kv_bytes: int) -> int:
    """Round down what an engine has for KV, so that engines that are nearly alike are alike."""
    spare = max(0, kv_bytes.bit_length() - SIGNIFICANT_BITS)
    return kv_bytes >> spare << spare


def _profile(service: ServiceStatus, num_devices: int) -> EngineProfile:
    token_bytes = service.block_bytes // max(1, service.block_size) or USUAL_TOKEN_BYTES
    return EngineProfile(
        f"{service.name}, learnt",
        service.prefill_cost,
        service.decode_cost,
        kv_bytes_per_token=token_bytes,
        kv_memory_bytes=token_bytes * max(1, service.num_blocks * service.block_size),
        source="learnt by engines",
        num_devices=num_devices,
    )
