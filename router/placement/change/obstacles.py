"""Finds what stands in the way of a plan that is better: no room for weights, or loads that failed lately.

Weights come before others go, so that a service never lacks a place. For a while an engine holds both, so it must
have room for both, or room in its host's memory for those that come (`router.placement.change.swaps`). A load that
failed (weights missing on that host, or damaged) would fail again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mesh.sizes import in_words
from mesh.wire.control import Role
from mesh.wire.status import EngineStatus
from router.placement.change.swaps import EngineWeights, weights_of
from router.placement.observe.roster import served
from router.placement.search.plan import Group, Plan


@dataclass(frozen=True, slots=True)
class Obstacles:
    """Tells what keeps engines from places. ``weights`` by service, in bytes; ``limits`` by engine, of those that have
    one (``weight_memory``); ``staging``: what its host's memory takes of weights (``staging_memory``).

    ``failed``: engines and services that they could not load. ``leaving``: what an engine holds beside that it serves.
    ``roles``: of engines that keep theirs. ``starts``: what engines hold when they start, of those that do not run.
    """

    weights: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    staging: Mapping[str, int] = field(default_factory=dict)
    failed: frozenset[tuple[str, str]] = frozenset()
    leaving: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    starts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        statuses: Mapping[str, EngineStatus],
        remembered: Iterable[EngineStatus] = (),
        failed: Iterable[tuple[str, str]] = (),
    ) -> "Obstacles":
        """Find the obstacles of a mesh. ``remembered`` may know services that nobody holds now."""
        weights = weights_of((*statuses.values(), *remembered))
        limits = {name: one.weight_memory for name, one in statuses.items() if one.weight_memory is not None}
        leaving = {
            name: tuple(sorted({service.name for service in one.services} - served(one)))
            for name, one in statuses.items()
        }
        roles = {name: one.role for name, one in statuses.items() if one.keeps_role}
        staging = {name: one.staging_memory for name, one in statuses.items()}
        return cls(weights, limits, staging, frozenset(failed), leaving, roles)

    def roomiest(self, plan: Plan) -> Mapping[int, int]:
        """Return, by number of devices, the largest limit of the plan's engines; nothing where one has none."""
        by_size: dict[int, list[int | None]] = {}
        for group in plan.groups:
            by_size.setdefault(group.num_devices, []).append(self.limits.get(group.id))
        return {size: max(filter(None, limits)) for size, limits in by_size.items() if all(limits)}

    def against(self, present: Plan, wanted: Plan) -> str | None:
        """Return why one engine cannot get from one plan to the other, in one line; None if all can."""
        held = {**self.starts, **{group.id: group.services for group in present.groups}}
        faults = (self.at(group, held.get(group.id, ())) for group in wanted.groups)
        return next((fault for fault in faults if fault is not None), None)

    def at(self, group: Group, held: tuple[str, ...]) -> str | None:
        """Return why an engine that holds ``held`` cannot get the place of the ``group``, in one line; None if
        it can.
        """
        if self.roles.get(group.id, group.role) is not group.role:
            return f"{group.id} runs static batches, which are prefilled and decoded in one place, and keeps its role"
        new = [name for name in group.services if name not in held]
        for name in new:
            if (group.id, name) in self.failed:
                return f"{group.id} could not load {name} when it was told to; `mesh load` tries again at once"
        both = {*held, *new, *self.leaving.get(group.id, ())}
        memory = EngineWeights(self.weights, self.limits.get(group.id))
        if not new or memory.limit is None or memory.fit(both):
            return None
        staged, room = memory.num_bytes(new), self.staging.get(group.id, 0)
        if memory.fit(group.services) and staged <= room:
            return None
        if memory.fit(group.services) and room:
            return (
                f"{group.id} would have to stage {', '.join(new)}: weights of {in_words(staged)}, "
                f"{in_words(staged - room)} more than its staging_memory"
            )
        needed = memory.num_bytes(both)
        return (
            f"{group.id} would hold {', '.join(sorted(both))} while the plan changes: weights of "
            f"{in_words(needed)}, {in_words(needed - memory.limit)} more than its weight_memory"
        )

    def swaps(self, present: Plan, wanted: Plan) -> list[str]:
        """Return the engines that cannot hold what they get beside what they hold, and swap."""
        held = {**self.starts, **{group.id: group.services for group in present.groups}}
        return [group.id for group in wanted.groups if self._swaps(group, held.get(group.id, ()))]

    def _swaps(self, group: Group, held: tuple[str, ...]) -> bool:
        both = {*held, *group.services, *self.leaving.get(group.id, ())}
        return both > set(held) and not EngineWeights(self.weights, self.limits.get(group.id)).fit(both)
