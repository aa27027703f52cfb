"""The whole search: algorithm 1 for each way to cut the cluster, then local search from its best plan on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from router.placement.catalogue import Catalogue, Cluster, check_fits
from router.placement.greedy import Scored, best_first, greedy
from router.placement.improve import improve
from router.placement.partition import partitions
from router.placement.plan import Plan
from router.placement.room import homeless
from router.placement.score import Score
from router.placement.traffic import Traffic

SHORTLIST = 3  # greedy plans, best first by their parts, that are evaluated whole
NEAR_ATTAINMENT, NEAR_LATENCY = 0.005, 1.1  # to what no plan can beat: what is nearer is not told apart in parts


class Evaluator(Protocol):
    """Scores plans for one traffic: quickly in parts (`router.placement.cells`), or whole."""

    def __call__(self, plans: Sequence[Plan]) -> Sequence[Score]: ...

    def exact(self, plans: Sequence[Plan]) -> Sequence[Score]:
        """All engines of a plan together, as they would serve."""

    def ideal(self) -> Score:
        """What no plan can beat: every request is served alone. It costs no simulation."""


@dataclass(frozen=True, slots=True)
class Found:
    """Scores are exact. ``homeless`` says of each service without a place why there is none."""

    best: Scored
    greedy: Scored  # what algorithm 1 alone answers
    homeless: Mapping[str, str]


def search(
    cluster: Cluster,
    catalogue: Catalogue,
    traffic: Traffic,
    evaluator: Evaluator,
    random: Random,
    is_over: Callable[[int], bool],
    present: Plan | None = None,
) -> Found:
    """Raise `PlacementError` for services that fit on no group of the cluster. ``is_over``: see `improve`.

    Local search begins at all greedy plans, and at the ``present`` one. It ends early with a plan near to the ideal.
    """
    check_fits(catalogue, cluster)
    made = greedy(partitions(cluster, catalogue), catalogue, traffic, evaluator)
    by_algorithm_1 = best_first(_exact([one.plan for one in made[:SHORTLIST]], evaluator))[0]
    held = [] if present is None else [present]
    starts = [*made, *(Scored(*pair) for pair in zip(held, evaluator(held), strict=True))]
    ideal = evaluator.ideal()
    improved = improve(
        starts, catalogue, evaluator, random, is_over, lambda one: is_near(one, ideal), may_cut=not cluster.engines
    )
    shortlist = [*(one.plan for one in improved), *held]
    others = dict.fromkeys(plan for plan in shortlist if plan != by_algorithm_1.plan)
    best = best_first([by_algorithm_1, *_exact(list(others), evaluator)])[0]
    number = 1 if present is None else present.number + 1
    return Found(replace(best, plan=replace(best.plan, number=number)), by_algorithm_1, homeless(best.plan, catalogue))


def is_near(one: Scored, ideal: Score) -> bool:
    """Whether other plans can be better by no more than scores in parts are worth."""
    return (
        not one.homeless
        and not one.score.short
        and one.score.attainment >= ideal.attainment - NEAR_ATTAINMENT
        and one.score.normalized_latency <= NEAR_LATENCY * ideal.normalized_latency
    )


def _exact(plans: Sequence[Plan], evaluator: Evaluator) -> list[Scored]:
    return [Scored(*pair) for pair in zip(plans, evaluator.exact(plans), strict=True)]
