"""Small changes to a plan: the neighbourhood of local search.

Services are added, dropped, moved, swapped, or take the place of others; engines are given to one phase; groups are
joined and split, where engines run by those that span others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from mesh.wire.control import Role
from router.placement.observe.requirements import Catalogue
from router.placement.search.partition import halves, joined, neighbours
from router.placement.search.plan import Group, Plan, has_all_phases
from router.placement.search.score import Score
from router.placement.search.span import DeviceSpan, regrouped

FOCUS = 0.7  # of the changes concern the service that is served worst


@dataclass(frozen=True, slots=True)
class Changes:
    """Drawn at random from the ``plan`` that the ``score`` is of."""

    plan: Plan
    score: Score
    catalogue: Catalogue
    random: Random
    may_cut: bool  # groups may be joined and split
    spans: Sequence[DeviceSpan] = ()  # of engines that run: what may be joined and split of them

    def draw(self) -> Plan | None:
        """A random change; None if it does not fit."""
        one_service = (self._add, self._drop, self._move, self._replace, self._swap)
        cuts = (self._join, self._split) if self.may_cut else (self._span, self._unspan) if self.spans else ()
        change = self.random.choice((*one_service, self._turn, *cuts))
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
        if self.catalogue.fits(services, group.num_devices, group.kv_bytes):
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
        for group in self._holding(joined(left, right), self._shared(left.services + right.services)):
            yield _with(self.plan, (left, right), (group,))

    def _shared(self, services: Sequence[str]) -> list[str]:
        """As many of them as may be on one group."""
        names = sorted(set(services))
        most = self.catalogue.max_sharing
        return names if len(names) <= most else self.random.sample(names, most)

    def _span(self) -> Iterator[Plan]:
        """An engine takes the devices of others, and what they hold."""
        groups = {group.id: group for group in self.plan.groups}
        able = [span for span in self.spans if all(group.id in groups for group in span.spanned)]
        if able:
            span = self.random.choice(able)
            held = [name for group in span.spanned for name in groups[group.id].services]
            for group in self._holding(span.spanning, self._shared(held)):
                yield regrouped(self.plan, span.spanned, (group,))

    def _unspan(self) -> Iterator[Plan]:
        """An engine gives its devices to others. Each holds what it held, or one service of that."""
        groups = {group.id: group for group in self.plan.groups}
        able = [span for span in self.spans if span.spanning.id in groups]
        if able:
            span = self.random.choice(able)
            services = groups[span.spanning.id].services
            is_dealt = len(services) > 1 and self.random.random() < 0.5
            dealt = [services[number % len(services)] for number in range(len(span.spanned))] if is_dealt else []
            parts = [
                part
                for number, group in enumerate(span.spanned)
                for part in self._holding(group, [dealt[number]] if dealt else services)
            ]
            if len(parts) == len(span.spanned):
                yield regrouped(self.plan, (span.spanning,), parts)

    def _split(self) -> Iterator[Plan]:
        """One becomes two equal ones: both hold its services, or each a part of them."""
        for group in self._group([group for group in self.plan.groups if group.num_devices % 2 == 0]):
            (left, right), services = halves(group), group.services
            parts = [(services, services)]
            if len(services) > 1:
                first = self.random.sample(services, self.random.randint(1, len(services) - 1))
                parts.append((tuple(first), tuple(name for name in services if name not in first)))
            here, there = self.random.choice(parts)
            for one in self._holding(left, here):
                for other in self._holding(right, there):
                    yield _with(self.plan, (group,), (one, other))


def _with(plan: Plan, old: Sequence[Group], new: Sequence[Group]) -> Plan:
    """The new groups in the place of the old ones, which stand next to each other."""
    index = plan.groups.index(old[0])
    return replace(plan, groups=(*plan.groups[:index], *new, *plan.groups[index + len(old) :]))
