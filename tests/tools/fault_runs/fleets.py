"""Engines of a run that hold one service at a time, share devices, or start and end as the load asks."""

from collections import Counter
from dataclasses import replace
from random import Random

from mesh.rules import PlacementMode, ScalingRule
from mesh.topology.schema import PlacementSpec, ScalingSpec, Topology
from mesh.wire.control import Role

WEIGHT_BYTES = 2**30  # of a service


def with_swaps(topology: Topology, random: Random) -> Topology:
    """In half of such runs, engines whose memory holds one service at a time, and begins with one."""
    if random.random() < 0.5:
        return topology
    names, room = [service.name for service in topology.services], WEIGHT_BYTES * 3 // 2
    engines = [
        replace(
            spec,
            role=Role.MULTIPLEX,
            services=(names[number % len(names)],),
            weight_memory_bytes=room,
            staging_memory_bytes=room,
        )
        for number, spec in enumerate(topology.engines)
    ]
    return replace(topology, engines=tuple(engines))


def with_spans(topology: Topology, random: Random) -> Topology:
    """In half of such runs, an engine that may take the devices of the first two, if these do the same."""
    first, second = topology.engines[:2]
    if random.random() < 0.5 or first.role is not second.role:
        return topology
    room = first.weight_memory_bytes
    wide = replace(
        first,
        id="wide",
        services=tuple(service.name for service in topology.services),
        spans=(first.id, second.id),
        is_standby=True,
        weight_memory_bytes=None if room is None else 2 * room,
        profile="a100-llama3-8b-tp2",
    )
    return replace(topology, engines=(*topology.engines, wide))


def with_scaling(topology: Topology, random: Random) -> Topology:
    """In a quarter of such runs, engines that start and end as the load asks, where several do the same."""
    pools = Counter(f"{spec.role} {spec.services}" for spec in topology.engines)
    if random.random() < 0.75 or max(pools.values()) < 2:
        return topology
    begun, engines = set[str](), []
    for spec in topology.engines:
        pool = f"{spec.role} {spec.services}"
        engines.append(replace(spec, pool=pool, is_standby=pool in begun and random.random() < 0.5))
        begun.add(pool)
    scaling = ScalingSpec(
        rule=random.choice(list(ScalingRule)),
        interval_s=0.2,
        margin=random.choice([0.0, 0.15]),
        down_after_s=random.choice([0.3, 2.0]),
        judge_s=random.choice([1.0, 30.0]),
        clears_s=random.choice([0.5, 10.0]),
        low_freeness=random.choice([10.0, 60.0]),
    )
    return replace(
        topology,
        engines=tuple(engines),
        scaling=scaling,
        placement=topology.placement or PlacementSpec(mode=PlacementMode.OFF),
    )
