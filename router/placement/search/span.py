"""Engines that span the devices of others: one runs in their place, or they in its place."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from router.placement.search.plan import Group, Plan


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """An engine and those whose devices it takes when it runs in their place. All hold what they start with."""

    spanning: Group
    spanned: tuple[Group, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.spanning, *self.spanned

    @property
    def names(self) -> frozenset[str]:
        return frozenset(group.id for group in self.groups)

    def is_whole(self, plan: Plan) -> bool:
        """Return whether a plan has one way of using the devices, and all engines of it."""
        here = self.names & {group.id for group in plan.groups}
        return here in ({self.spanning.id}, {group.id for group in self.spanned})

    def ways(self) -> Iterator[tuple[tuple[Group, ...], tuple[Group, ...]]]:
        """The engines that may end, and those that then begin."""
        yield self.spanned, (self.spanning,)
        yield (self.spanning,), self.spanned


@dataclass(frozen=True, slots=True)
class Regrouping:
    """Engines that give their devices to others."""

    ends: tuple[str, ...]
    begins: tuple[str, ...]

    def __str__(self) -> str:
        takes = "takes" if len(self.begins) == 1 else "take"
        return f"{' and '.join(self.begins)} {takes} the place of {' and '.join(self.ends)}"


def regrouped(plan: Plan, old: Sequence[Group], new: Sequence[Group]) -> Plan:
    """The plan with the new engines in the place of the old ones."""
    ended = {group.id for group in old}
    groups = [*(group for group in plan.groups if group.id not in ended), *new]
    return replace(plan, groups=tuple(sorted(groups, key=lambda group: group.id)))


def every_way(plan: Plan, spans: Sequence[DeviceSpan]) -> list[Plan]:
    """The plan as it is, and with all devices joined, and with none."""
    plans = [plan]
    for wide in (True, False):
        changed = plan
        for span in spans:
            old, new = (span.spanned, (span.spanning,)) if wide else ((span.spanning,), span.spanned)
            if {group.id for group in old} <= {group.id for group in changed.groups}:
                changed = regrouped(changed, old, new)
        plans.append(changed)
    return list(dict.fromkeys(plans))


def regroupings(here: Collection[str], there: Collection[str], spans: Iterable[DeviceSpan]) -> tuple[Regrouping, ...]:
    """Return what must change of the devices, so that the engines of ``there`` run and no longer those of ``here``."""
    gone, come = set(here) - set(there), set(there) - set(here)
    ways = ((old, new) for span in spans for old, new in span.ways())
    named = (Regrouping(tuple(one.id for one in old), tuple(one.id for one in new)) for old, new in ways)
    return tuple(one for one in named if gone >= set(one.ends) and come >= set(one.begins))
