"""Engines of the testbed whose services the placement daemon changes while they serve.

Those that *regroup* may be cut anew, too: two of a size become one of twice that, and back. Nodes keep all weights in
their memory then, as SeaLLM's pull them there before engines change (section 5), and the search knows what every
service costs on every number of devices (section 6.1).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.papers.seallm.multiplexing import shared_profile
from bench.papers.seallm.scene import World
from engines.costs.profiles import EngineProfile
from router.placement.observe.requirements import Footprint
from router.placement.observe.running_mesh import KV_UNITS, in_parts
from router.placement.search.partition import halves, joined, neighbours
from router.placement.search.plan import Group
from router.placement.search.question import Question
from simulation.engines.shared_profiles import SharedProfile
from simulation.placement.daemon import Search, SearchResult

ANY_MODEL = "llama2-7b"  # engines that span others name a profile; `WithCosts` tells what services cost there


@dataclass(frozen=True, slots=True)
class Replaceable:
    """An engine of these devices. ``settings`` of its `EngineSpec`."""

    group: Group
    profile: SharedProfile
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, group: Group, world: World, **settings: Any) -> "Replaceable":
        """Any service may come. Weights may take half of the memory, or what they take at first; KV has the rest for
        ever.
        """
        size, held = group.num_devices, shared_profile(group, world)
        known = [name for name, by_size in world.catalogue.footprints.items() if size in by_size]
        memory_bytes = size * world.catalogue.device_bytes
        profile = replace(
            held,
            services={name: world.catalogue.profile(name, size) for name in known},
            kv_memory_bytes=min(held.kv_memory_bytes, memory_bytes // 2),
        )
        weight_bytes = memory_bytes - profile.kv_memory_bytes
        return cls(
            group, profile, {"weight_memory_bytes": weight_bytes, "staging_memory_bytes": weight_bytes, **settings}
        )


def engine_id(group: Group) -> str:
    return group.id.replace("/", "-")


def regrouping(groups: Sequence[Group], world: World) -> Iterator[Replaceable]:
    """Yield the engines of the groups, and those on standby that may take their devices. Neighbours may be joined, and
    what has no neighbour may be halved. No engine is of two pairs.
    """
    ordered = sorted(groups, key=lambda group: (group.host, group.first))
    left = {group.id: group for group in ordered}
    for pair in neighbours(ordered):
        wide = _holding(joined(*pair), pair, world)
        if wide.services and all(one.id in left for one in pair):
            yield from _family(wide, pair, world, is_wide=False)
            for one in pair:
                del left[one.id]
    for group in left.values():
        parts = [_holding(part, [group], world) for part in halves(group)] if group.num_devices > 1 else []
        if parts and all(part.services for part in parts):
            yield from _family(group, parts, world, is_wide=True)
        else:
            yield Replaceable.of(group, world)


def _holding(group: Group, others: Iterable[Group], world: World) -> Group:
    """What it starts with: as much of what those hold as it has room for."""
    room = group.num_devices * world.catalogue.device_bytes // 2
    for name in dict.fromkeys(name for other in others for name in other.services):
        wanted = group.plus(name)
        if all(group.num_devices in world.catalogue.footprints[one] for one in wanted.services) and (
            len(wanted.services) <= world.catalogue.max_sharing and _weight_bytes(wanted, world) <= room
        ):
            group = wanted
    return group


def _weight_bytes(group: Group, world: World) -> int:
    return sum(world.catalogue.profile(name, group.num_devices).weight_bytes for name in group.services)


def _family(wide: Group, narrow: Sequence[Group], world: World, *, is_wide: bool) -> Iterator[Replaceable]:
    spans = tuple(map(engine_id, narrow))
    settings = {"profile": f"a100-{ANY_MODEL}-tp{wide.num_devices}", "spans": spans, "is_standby": not is_wide}
    yield Replaceable.of(wide, world, **settings)
    for group in narrow:
        profile = f"a100-{ANY_MODEL}-tp{group.num_devices}"
        yield Replaceable.of(group, world, profile=profile, is_standby=is_wide)


def costs_of(engines: Iterable[Replaceable]) -> dict[int, SharedProfile]:
    """Return what services cost by number of devices, with the memory of the engine that has least."""
    costs: dict[int, SharedProfile] = {}
    for profile in (engine.profile for engine in engines):
        known = costs.get(profile.num_devices, profile)
        costs[profile.num_devices] = min(known, profile, key=lambda one: one.kv_memory_bytes)
    return costs


@dataclass(frozen=True, slots=True)
class WithCosts:
    """A search that is told what services cost, by number of devices, where no engine has had them."""

    search: Search
    profiles: Mapping[int, SharedProfile]

    def __call__(self, question: Question) -> SearchResult:
        catalogue = question.catalogue
        footprints = {
            name: {size: self._footprint(name, size, known) for size in self.profiles if self._costs(name, size)}
            for name, by_size in catalogue.footprints.items()
            for known in [next(iter(by_size.values()))]
        }
        return self.search(replace(question, catalogue=replace(catalogue, footprints=footprints)))

    def _costs(self, service: str, size: int) -> EngineProfile | None:
        return self.profiles[size].services.get(service)

    def _footprint(self, service: str, size: int, known: Footprint) -> Footprint:
        """``known`` tells the longest request."""
        of_size, there = self.profiles[size], known.profile
        num_tokens = there.kv_memory_bytes // there.kv_bytes_per_token
        longest = known.kv_bytes * num_tokens // (KV_UNITS * there.num_devices)
        return in_parts(replace(of_size.services[service], kv_memory_bytes=of_size.kv_memory_bytes), longest)
