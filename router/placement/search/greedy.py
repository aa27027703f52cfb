"""SeaLLM's algorithm 1: services are added to groups one at a time, the most unserved one to the least loaded group."""

from collections.abc import Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Traffic
from router.placement.search.partition import first_fit
from router.placement.search.plan import Group, Plan
from router.placement.search.score import Evaluate, Rank, Score

Allocation = Generator[Plan, Score, "Scored"]


@dataclass(frozen=True, slots=True)
class Scored:
    plan: Plan
    score: Score

    @property
    def homeless(self) -> AbstractSet[str]:
        """Services without a place."""
        return self.score.services.keys() - self.plan.services

    @property
    def rank(self) -> tuple[int, Rank, int]:
        """Greater is better: services without a place count first (equation 3), copies of weights last."""
        return -len(self.homeless), self.score.rank, -sum(len(group.services) for group in self.plan.groups)


def greedy(
    partitions: Sequence[Sequence[Group]], catalogue: Catalogue, traffic: Traffic, evaluate: Evaluate
) -> list[Scored]:
    """The best first; one plan for each partition. They are made in lock step: evaluators get many plans at a time."""
    allocations = [allocate(groups, catalogue, traffic) for groups in partitions]
    waiting = [(allocation, next(allocation)) for allocation in allocations]
    done: list[Scored] = []
    while waiting:
        scores = evaluate([plan for _, plan in waiting])
        going: list[tuple[Allocation, Plan]] = []
        for (allocation, _), score in zip(waiting, scores, strict=True):
            try:
                going.append((allocation, allocation.send(score)))
            except StopIteration as end:
                done.append(end.value)
        waiting = going
    return best_first(done)


def best_first(scored: Sequence[Scored]) -> list[Scored]:
    return sorted(scored, key=lambda one: one.rank, reverse=True)


def allocate(groups: Sequence[Group], catalogue: Catalogue, traffic: Traffic) -> Allocation:
    """The second stage for one partition: yields plans to be scored, returns the one to which nothing can be added."""
    plan = Plan(tuple(groups))
    while True:
        score = yield plan
        added = next(_additions(plan, score, catalogue, traffic), None)
        if added is None:
            return Scored(plan, score)
        plan = plan.with_groups(added)


def _additions(plan: Plan, score: Score, catalogue: Catalogue, traffic: Traffic) -> Iterator[Group]:
    """In the order of the paper's loops. None takes the room that a service without any place needs."""
    homeless = [name for name in catalogue.services if name not in plan.services]
    has_room = _has_room(plan, homeless, catalogue)
    rates = {group.id: group_rate(group, plan, traffic) for group in plan.groups}
    services = sorted(catalogue.services, key=lambda name: (-score.services[name].unserved_index, name))
    for group in sorted(plan.groups, key=lambda group: rates[group.id]):
        for service in services:
            wanted = (*group.services, service)
            if service in group.services or not catalogue.fits(wanted, group.num_devices, group.kv_bytes):
                continue
            added = group.plus(service)
            others = [name for name in homeless if name != service]
            if not has_room or _has_room(plan.with_groups(added), others, catalogue):
                yield added


def _has_room(plan: Plan, homeless: Sequence[str], catalogue: Catalogue) -> bool:
    """Whether services without a place would find one (equation 3)."""
    return not homeless or not first_fit(plan.groups, catalogue, homeless)


def group_rate(group: Group, plan: Plan, traffic: Traffic) -> float:
    """Requests a second for each device, if those of a service go to its groups in proportion to their devices."""
    return sum(traffic.rate(name) / sum(other.num_devices for other in plan.groups_of(name)) for name in group.services)
