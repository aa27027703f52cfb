"""Decides whether to replace the present plan at the end of an interval."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log, pi

from router.placement.change.obstacles import Obstacles
from router.placement.observe.interval import Threshold
from router.placement.observe.traffic import Traffic
from router.placement.search.chance import chance, most_losses
from router.placement.search.plan import Plan
from router.placement.search.score import Score, together
from router.placement.search.search import NO_OBSTACLES, Evaluator
from router.placement.search.span import DeviceSpan, Regrouping, regroupings

RISK = 0.05  # of any change that is worth it by chance only, while services are asked for the same, however long

EvaluatorFor = Callable[[Traffic], Evaluator]
Pair = tuple[Score, Score]  # of the present and the wanted plan


class Verdict(StrEnum):
    ENOUGH = "good enough"  # no plan that there could be would be worth a change
    KEEP = "keep"  # no better plan was found
    NOT_WORTH = "not worth it"  # what it gains is less than what the change costs, or noise
    OBSTRUCTED = "obstructed"  # a better one cannot be carried out, and what can be is not worth it
    BY_CHANCE = "by chance"  # it gains where it was found, and too little on other samples of the same traffic
    PASSING = "passing"  # it gains while the load stays, and less than it costs with those that are likely to come
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan and the present one. ``present`` and ``wanted`` are scores for the traffic of the interval that ended.

    ``obstacle``: why it cannot be carried out. ``swaps``: engines that cannot hold both what they have and what they
    get (`router.placement.change.swaps`). ``regroupings``: engines that give their devices to others.
    """

    plan: Plan
    verdict: Verdict
    present: Score
    wanted: Score
    num_loads: int
    obstacle: str | None = None
    swaps: tuple[str, ...] = ()
    regroupings: tuple[Regrouping, ...] = ()

    @property
    def estimate(self) -> Score:
        """Return what the interval to come is expected to bring."""
        return self.wanted if self.verdict is Verdict.REPLACE else self.present


def judge(
    present: Plan,
    wanted: Plan,
    traffic: Traffic,
    threshold: Threshold,
    evaluator_for: EvaluatorFor,
    samples: Iterable[Traffic],
    risk: float,
    obstacles: Obstacles = NO_OBSTACLES,
    spans: Iterable[DeviceSpan] = (),
    others: Iterable[Traffic] = (),
    stays: float = 1.0,
) -> Proposal:
    """``wanted`` was found for the ``traffic``. The change must be worth it on all ``samples`` together, too, and what
    it gains there be chance with no more than the ``risk``. After too many losses no more samples are looked at. And it
    must be worth it if ``stays`` is the part of the time with such traffic, and the rest is like the ``others``.

    A place for a service that has none is worth any change.
    """
    present_score, wanted_score = evaluator_for(traffic).exact([present, wanted])
    loaded, obstacle = loads(present, wanted), obstacles.against(present, wanted)
    changes = regroupings(present.engines, wanted.engines, spans)
    rates = sum(map(traffic.rate, loaded)), sum(paused_rate(present, one.ends, traffic) for one in changes)

    def verdict() -> Verdict:
        if wanted_score.rank <= present_score.rank and not wanted.services > present.services:
            return Verdict.KEEP
        is_needed = wanted.services > present.services
        if not is_needed and not threshold.is_worth(present_score, wanted_score, *rates):
            return Verdict.NOT_WORTH
        if obstacle is not None:
            return Verdict.OBSTRUCTED
        if is_needed:
            return Verdict.REPLACE
        counts_latency = threshold.gain(present_score, wanted_score, *rates) <= threshold.min_gain
        seen = _sure(pairs_of(samples), threshold, rates, risk, counts_latency=counts_latency)
        if seen is None:
            return Verdict.BY_CHANCE
        coming = _expected(seen, list(pairs_of(others)), stays)
        return Verdict.REPLACE if threshold.is_worth(*coming, *rates) else Verdict.PASSING

    def pairs_of(samples: Iterable[Traffic]) -> Iterator[Pair]:
        for sample in samples:
            here, there = evaluator_for(sample).exact([present, wanted])
            yield here, there

    swaps = tuple(obstacles.swaps(present, wanted))
    return Proposal(wanted, verdict(), present_score, wanted_score, len(loaded), obstacle, swaps, changes)


def _sure(
    pairs: Iterable[Pair],
    threshold: Threshold,
    rates: tuple[float, float],
    risk: float,
    *,
    counts_latency: bool,
) -> list[Pair] | None:
    """The scores of the present and the wanted plan on all samples; None if what is gained may be chance, or is too
    little. Gains are of attainment, or of latency. ``rates``: of loads, and of engines that pause.
    """
    seen, gains = list[Pair](), list[float]()
    for here, there in pairs:
        seen.append((here, there))
        gains.append(_faster(here, there) if counts_latency else threshold.gain(here, there, *rates))
        if sum(gain <= 0 for gain in gains) > most_losses(risk):
            return None
    is_worth = threshold.is_worth(*_mean(seen), *rates)
    return seen if is_worth and chance(gains) <= risk else None


def _expected(seen: Sequence[Pair], others: Sequence[Pair], stays: float) -> Pair:
    """Return the scores of both plans for the time to come."""
    if not others:
        return _mean(seen)
    (here, there), (here_then, there_then) = _mean(seen), _mean(others)
    return (
        together([here.scaled(stays), here_then.scaled(1 - stays)]),
        together([there.scaled(stays), there_then.scaled(1 - stays)]),
    )


def _mean(pairs: Sequence[Pair]) -> Pair:
    here, there = (together(scores).scaled(1 / len(pairs)) for scores in zip(*pairs, strict=True))
    return here, there


def _faster(here: Score, there: Score) -> float:
    """By which factor latency is less, as its logarithm: halved and doubled are as far from the same."""
    both = here.normalized_latency, there.normalized_latency
    return log(both[0] / both[1]) if min(both) > 0 else 0.0


def risk_of(num_intervals: int) -> float:
    """Return the risk of a change by chance, at the end of so many intervals of the same traffic.

    Each decision is another chance to be wrong. The k-th one may have 6 / (pi k)^2 of the `RISK`, so that those of all
    decisions together have no more than all of it.
    """
    return 6 * RISK / (pi * num_intervals) ** 2


def loads(present: Plan, wanted: Plan) -> list[str]:
    """The services of the copies of weights that have to be loaded to get from one plan to the other."""
    held = {(group.id, group.num_devices): group.services for group in present.groups}
    return [
        service
        for group in wanted.groups
        for service in group.services
        if service not in held.get((group.id, group.num_devices), ())
    ]


def paused_rate(present: Plan, ends: Collection[str], traffic: Traffic) -> float:
    """Return the requests a second that come to engines which end, if those of a service go to its engines in
    proportion to their devices.
    """
    return sum(
        traffic.rate(service) * group.num_devices / sum(other.num_devices for other in present.groups_of(service))
        for group in present.groups
        if group.id in ends
        for service in group.services
    )
