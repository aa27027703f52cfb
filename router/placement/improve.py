"""Local search: changes to a plan that make it better, among them those that the greedy search never makes.

It adds, drops, moves, replaces and swaps services, gives engines to one phase, and joins or splits groups.
Beyond SeaLLM.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from mesh.messages import Role
from router.placement.catalogue import Catalogue
from router.placement.greedy import Scored
from router.placement.partition import halves, joined, neighbours
from router.placement.plan import Group, Plan, has_all_phases
from router.placement.score import Evaluate, Score

BATCH = 8  # neighbours that are evaluated at a time
MOST_TRIES = 64  # draws in search of a neighbour that fits
FOCUS = 0.7  # of the draws concern the service that is served worst


def improve(
    start: Scored,
    catalogue: Catalogue,
    evaluate: Evaluate,
    random: Random,
    is_over: Callable[[int], bool],
    batch: int = BATCH,
) -> Scored:
    """The best plan found from ``start`` on; ``is_over`` is asked before each batch, with the number of those before.

    Of a batch the best neighbour is taken if it is better than where the search stands.
    """
    best, num_batches, seen = start, 0, {_shape(start.plan)}
    while not is_over(num_batches):
        num_batches += 1
        plans = _neighbours(best, catalogue, random, seen, batch)
        if not plans:
            continue
        scored = [Scored(*pair) for pair in zip(plans, evaluate(plans), strict=True)]
        found = max(scored, key=lambda one: one.score.rank)
        if found.score.rank > best.score.rank:
            best = found
    return best


Shape = tuple[tuple[str, int, tuple[str, ...], Role], ...]


def _shape(plan: Plan) -> Shape:
    """What tells plans apart: groups of a host that are alike can change places."""
    return tuple(sorted((group.host, group.num_devices, group.services, group.role) for group in plan.groups))


def _neighbours(best: Scored, catalogue: Catalogue, random: Random, seen: set[Shape], most: int) -> list[Plan]:
    found: list[Plan] = []
    neighbourhood = _Neighbourhood(best.plan, best.score, catalogue, random)
    for _ in range(MOST_TRIES):
        if len(found) == most:
            break
        plan = neighbourhood.draw()
        if plan is not None and _shape(plan) not in seen:
            seen.add(_shape(plan))
            found.append(plan)
    return found


@dataclass(frozen=True, slots=True)
class _Neighbourhood:
    plan: Plan
    score: Score
    catalogue: Catalogue
    random: Random

    def draw(self) -> Plan | None:
        """A random change; None if it does not fit."""
        one_service = (self._add, self._drop, self._move, self._replace, self._swap)
        change = self.random.choice((*one_service, self._turn, self._join, self._split))
        changed = next(change(), None)
        return changed if changed is not None and self._is_valid(changed) else None

    def _is_valid(self, plan: Plan) -> bool:
        return plan.services >= self.plan.services and has_all_phases(plan, plan.services)

    def _service(self) -> str:
        """Mostly the one that is served worst."""
        services = self.catalogue.services
        if self.random.random() < FOCUS:
            weights = [self.score.services[name].unserved_index + 1e-9 for name in services]
            return self.random.choices(services, weights)[0]
        return self.random.choice(services)

    def _group(self, groups: Sequence[Group]) -> Iterator[Group]:
        if groups:
            yield self.random.choice(groups)

    def _holding(self, group: Group, services: Sequence[str]) -> Iterator[Group]:
        if self.catalogue.fits(services, group.num_devices):
            yield group.holding(services)

    def _add(self) -> Iterator[Plan]:
        service = self._service()
        for group in self._group([group for group in self.plan.groups if service not in group.services]):
            for changed in self._holding(group, [*group.services, service]):
                yield self.plan.with_groups(changed)

    def _drop(self) -> Iterator[Plan]:
        for group in self._group([group for group in self.plan.groups if len(group.services) > 1]):
            yield self.plan.with_groups(group.minus(self.random.choice(group.services)))

    def _move(self) -> Iterator[Plan]:
        service = self._service()
        for group in self._group(self.plan.groups_of(service)):
            for to in self._group([other for other in self.plan.groups if service not in other.services]):
                for changed in self._holding(to, [*to.services, service]):
                    yield self.plan.with_groups(group.minus(service), changed)

    def _replace(self) -> Iterator[Plan]:
        """A service takes the place of another one."""
        service = self._service()
        for group in self._group([o for o in self.plan.groups if o.services and service not in o.services]):
            other = self.random.choice(group.services)
            for changed in self._holding(group, [service, *(name for name in group.services if name != other)]):
                yield self.plan.with_groups(changed)

    def _swap(self) -> Iterator[Plan]:
        """One service of a group for one of another's."""
        service = self._service()
        for group in self._group(self.plan.groups_of(service)):
            for to in self._group([o for o in self.plan.groups if o.services and service not in o.services]):
                other = self.random.choice(to.services)
                if other in group.services:
                    continue
                for here in self._holding(group, [other, *(name for name in group.services if name != service)]):
                    for there in self._holding(to, [service, *(name for name in to.services if name != other)]):
                        yield self.plan.with_groups(here, there)

    def _turn(self) -> Iterator[Plan]:
        """Other roles: of one engine, or of two that serve a service, so that they share its phases."""
        service = self._service()
        groups = self.plan.groups_of(service)
        if len(groups) > 1 and self.random.random() < 0.5:
            first, second = self.random.sample(groups, 2)
            yield self.plan.with_groups(replace(first, role=Role.PREFILL), replace(second, role=Role.DECODE))
            return
        for group in self._group(groups):
            yield self.plan.with_groups(
                replace(group, role=self.random.choice([r for r in Role if r is not group.role]))
            )

    def _join(self) -> Iterator[Plan]:
        """Two equal neighbours of a host become one."""
        pairs = neighbours(self.plan.groups)
        if not pairs:
            return
        left, right = self.random.choice(pairs)
        services = sorted({*left.services, *right.services})
        if len(services) > self.catalogue.max_sharing:
            services = self.random.sample(services, self.catalogue.max_sharing)
        for group in self._holding(joined(left, right), services):
            yield _with(self.plan, (left, right), (group,))

    def _split(self) -> Iterator[Plan]:
        """One becomes two equal ones, which share its services as far as they fit."""
        for group in self._group([group for group in self.plan.groups if group.num_devices % 2 == 0]):
            left, right = halves(group)
            for services in (group.services, *((name,) for name in group.services)):
                rest = [name for name in group.services if name not in services] or services
                for first in self._holding(left, services):
                    for second in self._holding(right, rest):
                        yield _with(self.plan, (group,), (first, second))


def _with(plan: Plan, old: Sequence[Group], new: Sequence[Group]) -> Plan:
    """The new groups in the place of the old ones, which stand next to each other."""
    index = plan.groups.index(old[0])
    return replace(plan, groups=(*plan.groups[:index], *new, *plan.groups[index + len(old) :]))
