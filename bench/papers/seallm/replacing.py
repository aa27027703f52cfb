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
from router.placement.observe.running_mesh import rounded
from router.placement.search.partition import halves, joined, neighbours
from router.placement.search.plan import Group
from router.placement.search.question import Question
from router.placement.search.span import DeviceSpan
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


@dataclass(frozen=True, slots=True)
class WithCosts:
    """A search that is told what services cost, by number of devices, where no engine has had them. ``engines``: all
    that there may be, with their profiles.
    """

    search: Search
    engines: Mapping[str, SharedProfile]

    def __call__(self, question: Question) -> SearchResult:
        catalogue = question.catalogue
        by_size = {profile.num_devices: profile for profile in self.engines.values()}
        footprints = {
            name: {
                size: _footprint(profile.services[name], known)
                for size, profile in by_size.items()
                if name in profile.services
            }
            for name, found in catalogue.footprints.items()
            for known in [next(iter(found.values()))]
        }
        spans = tuple(
            DeviceSpan(self._group(span.spanning), tuple(map(self._group, span.spanned)))
            for span in question.cluster.spans
        )
        told = replace(question, catalogue=replace(catalogue, footprints=footprints))
        return self.search(replace(told, cluster=replace(question.cluster, spans=spans)))

    def _group(self, group: Group) -> Group:
        return replace(group, kv_bytes=rounded(self.engines[group.id].kv_memory_bytes))


def _footprint(profile: EngineProfile, known: Footprint) -> Footprint:
    """``known`` tells the longest request. Weights are counted apart on running engines."""
    longest = known.kv_bytes // known.profile.kv_bytes_per_token
    alone = replace(profile, weight_bytes=0)
    return Footprint(alone, alone.kv_bytes(longest))
