"""Finds the plans that a mesh can get to, and which of its engines takes which place of a plan.

Engines of one size that have as much for KV are alike to whoever makes a plan (`router.placement.search.cells`), not to
whoever carries it out: one holds weights already that another one would have to load, or has no room for.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from router.placement.change.obstacles import Obstacles
from router.placement.search.plan import Group, Plan

Costs = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Reach:
    """Finds what of a plan the engines of ``present`` can get to."""

    present: Plan
    obstacles: Obstacles

    def includes(self, plan: Plan) -> bool:
        return self.obstacles.against(self.present, plan) is None

    def nearest(self, plan: Plan) -> Plan:
        """Return the same places, given to engines that are alike so that as few as possible have an obstacle. Of
        such ways it is the one with the fewest copies to load, and of those the one where the fewest roles change.
        """
        alike: dict[tuple[int, int | None], list[Group]] = defaultdict(list)
        for group in plan.groups:
            alike[group.num_devices, group.kv_bytes].append(group)
        return plan.with_groups(*(group for groups in alike.values() for group in self._dealt(groups)))

    def part(self, plan: Plan) -> Plan:
        """Return as much of the plan as can be had: engines that have an obstacle stay as they are, and so do those
        that hold a service which would have no place without them.
        """
        now = {group.id: group for group in self.present.groups}
        engines = [self._now(group) for group in plan.groups]
        staying = {
            group.id
            for group, engine in zip(plan.groups, engines, strict=True)
            if self.obstacles.at(group, engine.services) is not None
        }
        while True:
            if not staying <= now.keys() & {group.id for group in plan.groups}:
                return self.present  # an engine that would have to stay has no devices in the plan, or had none
            mixed = plan.with_groups(*(now[name] for name in staying))
            lost = self.present.services - mixed.services
            keepers = {group.id for group in self.present.groups if lost & set(group.services)}
            if keepers <= staying:
                return mixed
            staying |= keepers

    def _now(self, place: Group) -> Group:
        """The engine of a place as it is; one that does not run, as it starts."""
        known = next((group for group in self.present.groups if group.id == place.id), None)
        return place.holding(self.obstacles.starts.get(place.id, ())) if known is None else known

    def _dealt(self, places: Sequence[Group]) -> list[Group]:
        """The places of engines that are alike, each on one of these."""
        engines = [self._now(place) for place in places]
        costs = [[self._cost(engine, place) for place in places] for engine in engines]
        chosen = cheapest(costs)
        return [
            replace(engine, services=places[index].services, role=places[index].role)
            for engine, index in zip(engines, chosen, strict=True)
        ]

    def _cost(self, engine: Group, place: Group) -> float:
        wanted = replace(engine, services=place.services, role=place.role)
        copies = len(set(place.services) - set(engine.services))
        has_obstacle = self.obstacles.at(wanted, engine.services) is not None
        return 1e6 * has_obstacle + copies + 1e-3 * (place.role is not engine.role)


def cheapest(costs: Costs) -> list[int]:
    """Return for each row its column, each another one, so that the sum is least (the Hungarian method, by shortest
    paths).
    """
    size = len(costs)
    of_row, of_column = [0.0] * (size + 1), [0.0] * (size + 1)  # what they are worth: the last one is a dummy
    row_in = [size] * (size + 1)  # by column
    for row in range(size):
        row_in[size] = row
        column, least, before = size, [inf] * size, [size] * size
        done = [False] * (size + 1)
        while row_in[column] != size:
            done[column] = True
            current = row_in[column]
            for other in range(size):
                cost = costs[current][other] - of_row[current] - of_column[other]
                if not done[other] and cost < least[other]:
                    least[other], before[other] = cost, column
            step, following = min((least[other], other) for other in range(size) if not done[other])
            for other in range(size + 1):
                if done[other]:
                    of_row[row_in[other]] += step
                    of_column[other] -= step
                elif other < size:
                    least[other] -= step
            column = following
        while column != size:
            previous = before[column]
            row_in[column] = row_in[previous]
            column = previous
    column_of = {row_in[column]: column for column in range(size)}
    return [column_of[row] for row in range(size)]
