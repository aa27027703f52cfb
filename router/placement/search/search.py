"""The whole search: algorithm 1 for each way to cut the cluster, then local search from its best plan on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from router.placement.change.obstacles import Obstacles
from router.placement.change.reach import Reach
from router.placement.observe.requirements import Catalogue, Cluster, check_fits
from router.placement.observe.traffic import Traffic
from router.placement.search.greedy import Scored, best_first, greedy
from router.placement.search.improve import improve
from router.placement.search.partition import partitions
from router.placement.search.plan import Plan
from router.placement.search.room import homeless
from router.placement.search.score import Score

SHORTLIST = 3  # greedy plans, best first by their parts, that are evaluated whole
NO_OBSTACLES = Obstacles()
NEAR_ATTAINMENT, NEAR_LATENCY = 0.005, 1.1  # to what no plan can beat: what is nearer is not told apart in parts


class Evaluator(Protocol):
    """Scores plans for one traffic: quickly in parts (`router.placement.search.cells`), or whole."""

    def __call__(self, plans: Sequence[Plan]) -> Sequence[Score]: ...

    def exact(self, plans: Sequence[Plan]) -> Sequence[Score]:
        """All engines of a plan together, as they would serve."""

    def ideal(self) -> Score:
        """Return what no plan can beat: every request is served alone. It costs no simulation."""


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """Scores are exact. ``homeless`` says of each service without a place why there is none."""

    best: Scored
    greedy: Scored  # what algorithm 1 alone answers, as far as it can be had
    homeless: Mapping[str, str]
    beyond: Plan | None = None  # what algorithm 1 answers, if not all of that can be had


def search(
    cluster: Cluster,
    catalogue: Catalogue,
    traffic: Traffic,
    evaluator: Evaluator,
    random: Random,
    is_over: Callable[[int], bool],
    present: Plan | None = None,
    obstacles: Obstacles = NO_OBSTACLES,
) -> FoundPlan:
    """Raise `PlacementError` for services that fit on no group of the cluster. ``is_over``: see `improve`.

    Local search begins at all greedy plans, and at the ``present`` one. It ends early with a plan near to the ideal. If
    engines stay as they are, but for the cluster's spans, only plans that have none of the ``obstacles`` are
    considered. The one that is found is dealt to the engines that have least to load for it.
    """
    check_fits(catalogue, cluster)
    made = greedy(partitions(cluster, catalogue), catalogue, traffic, evaluator)
    reach = None if present is None or not cluster.engines else Reach(present, obstacles)
    beyond = None
    if reach is not None:
        nearest = [reach.nearest(one.plan) for one in made]
        beyond = None if reach.includes(nearest[0]) else nearest[0]
        made = best_first(_in_parts([reach.part(plan) for plan in nearest], evaluator))
    by_algorithm_1 = best_first(_exact([one.plan for one in made[:SHORTLIST]], evaluator))[0]
    held = [] if present is None else [present]
    starts = [*made, *_in_parts(held, evaluator)]
    ideal = evaluator.ideal()
    improved = improve(
        starts,
        catalogue,
        evaluator,
        random,
        is_over,
        lambda one: is_near(one, ideal),
        is_open=None if reach is None else reach.includes,
        may_cut=not cluster.engines,
        spans=cluster.spans,
    )
    shortlist = [*(one.plan for one in improved), *held]
    others = dict.fromkeys(plan for plan in shortlist if plan != by_algorithm_1.plan)
    best = best_first([by_algorithm_1, *_exact(list(others), evaluator)])[0]
    number = 1 if present is None else present.number + 1
    plan = best.plan if reach is None else reach.nearest(best.plan)
    best = replace(best, plan=replace(plan, number=number))
    return FoundPlan(best, by_algorithm_1, homeless(plan, catalogue), beyond)


def is_near(one: Scored, ideal: Score) -> bool:
    """Return whether other plans can be better by no more than scores in parts are worth."""
    return (
        not one.homeless
        and not one.score.short
        and one.score.attainment >= ideal.attainment - NEAR_ATTAINMENT
        and one.score.normalized_latency <= NEAR_LATENCY * ideal.normalized_latency
    )


def _in_parts(plans: Sequence[Plan], evaluator: Evaluator) -> list[Scored]:
    return [Scored(*pair) for pair in zip(plans, evaluator(plans), strict=True)]


def _exact(plans: Sequence[Plan], evaluator: Evaluator) -> list[Scored]:
    return [Scored(*pair) for pair in zip(plans, evaluator.exact(plans), strict=True)]
