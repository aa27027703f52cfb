"""Finds what stands in the way of a plan that is better: no room for weights, or loads that failed lately.

Weights come before others go, so that a service never lacks a place: for a while an engine holds both, and must have
room for both. A load that failed (weights missing on that host, or damaged) would fail again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mesh.sizes import in_words
from mesh.wire.status import EngineStatus
from router.placement.observe.roster import served
from router.placement.search.plan import Group, Plan


@dataclass(frozen=True, slots=True)
class Obstacles:
    """Tells what keeps engines from places. ``weights`` by service, in bytes; ``limits`` by engine, of those that have
    one (``weight_memory``).

    ``failed``: engines and services that they could not load. ``leaving``: what an engine holds beside that it serves.
    """

    weights: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    failed: frozenset[tuple[str, str]] = frozenset()
    leaving: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        statuses: Mapping[str, EngineStatus],
        remembered: Iterable[EngineStatus] = (),
        failed: Iterable[tuple[str, str]] = (),
    ) -> "Obstacles":
        """Find the obstacles of a mesh. ``remembered`` may know services that nobody holds now."""
        weights: dict[str, int] = {}
        for status in (*statuses.values(), *remembered):
            for service in status.services:
                weights[service.name] = max(weights.get(service.name, 0), service.weight_bytes)
        limits = {name: one.weight_memory for name, one in statuses.items() if one.weight_memory is not None}
        leaving = {
            name: tuple(sorted({service.name for service in one.services} - served(one)))
            for name, one in statuses.items()
        }
        return cls(weights, limits, frozenset(failed), leaving)

    def roomiest(self, plan: Plan) -> Mapping[int, int]:
        """Return, by number of devices, the largest limit of the plan's engines; nothing where one has none."""
        by_size: dict[int, list[int | None]] = {}
        for group in plan.groups:
            by_size.setdefault(group.num_devices, []).append(self.limits.get(group.id))
        return {size: max(filter(None, limits)) for size, limits in by_size.items() if all(limits)}

    def against(self, present: Plan, wanted: Plan) -> str | None:
        """Return why one engine cannot get from one plan to the other, in one line; None if all can."""
        held = {group.id: group.services for group in present.groups}
        faults = (self.at(group, held.get(group.id, ())) for group in wanted.groups)
        return next((fault for fault in faults if fault is not None), None)

    def at(self, group: Group, held: tuple[str, ...]) -> str | None:
        """Return why an engine that holds ``held`` cannot get the place of the ``group``, in one line; None if
        it can.
        """
        new = [name for name in group.services if name not in held]
        for name in new:
            if (group.id, name) in self.failed:
                return f"{group.id} could not load {name} when it was told to; `mesh load` tries again at once"
        limit, both = self.limits.get(group.id), {*held, *new, *self.leaving.get(group.id, ())}
        needed = sum(self.weights.get(name, 0) for name in both)
        if new and limit is not None and needed > limit:
            return (
                f"{group.id} would hold {', '.join(sorted(both))} while the plan changes: weights of "
                f"{in_words(needed)}, {in_words(needed - limit)} more than its weight_memory"
            )
        return None
