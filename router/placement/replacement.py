"""Whether to replace the present plan at the end of an interval, and how long the next interval is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from router.placement.interval import ReplacementInterval, Threshold
from router.placement.plan import Plan
from router.placement.score import Score
from router.placement.search import Evaluator
from router.placement.traffic import Traffic

EvaluatorFor = Callable[[Traffic], Evaluator]


class Verdict(StrEnum):
    KEEP = "keep"  # there is no better plan
    NOT_WORTH = "not worth it"  # what it gains is less than what the change costs, or noise
    BY_CHANCE = "by chance"  # it gains where it was found, not on another sample of the same traffic
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Proposal:
    """``present`` and ``wanted`` are scores for the traffic of the interval that ended."""

    plan: Plan
    verdict: Verdict
    present: Score
    wanted: Score
    num_loads: int

    @property
    def estimate(self) -> Score:
        """What the interval to come is expected to bring."""
        return self.wanted if self.verdict is Verdict.REPLACE else self.present


class Replacement:
    """The plan in force. Plans change only for a gain that another sample of the same traffic confirms."""

    def __init__(self, plan: Plan, interval: ReplacementInterval, threshold: Threshold, seed: int = 0) -> None:
        self.plan = plan
        self.interval = interval
        self._threshold = threshold
        self._seed = seed
        self._num_intervals = 0
        self._estimate: Score | None = None

    def __repr__(self) -> str:
        return f"<Replacement plan {self.plan.number}, {self.interval!r}>"

    def decide(self, wanted: Plan, traffic: Traffic, evaluator_for: EvaluatorFor) -> Proposal:
        """``wanted`` was found for the ``traffic`` of the interval that ends. If it is to replace, it is in force."""
        self._num_intervals += 1
        present_score, wanted_score = evaluator_for(traffic).exact([self.plan, wanted])
        loaded = loads(self.plan, wanted)
        proposal = Proposal(wanted, Verdict.KEEP, present_score, wanted_score, len(loaded))
        loaded_rate = sum(traffic.rate(service) for service in loaded)
        if wanted_score.rank > present_score.rank:
            proposal = replace(proposal, verdict=self._verdict(proposal, traffic, loaded_rate, evaluator_for))
        if proposal.verdict is Verdict.REPLACE:
            self.plan = replace(wanted, number=self.plan.number + 1)
            proposal = replace(proposal, plan=self.plan)
        self._estimate = proposal.estimate
        return proposal

    def _verdict(
        self, proposal: Proposal, traffic: Traffic, loaded_rate: float, evaluator_for: EvaluatorFor
    ) -> Verdict:
        if not self._threshold.is_worth(proposal.present, proposal.wanted, loaded_rate):
            return Verdict.NOT_WORTH
        anew = traffic.drawn_anew(self._seed + self._num_intervals)
        present, wanted = evaluator_for(anew).exact([self.plan, proposal.plan])
        return Verdict.REPLACE if self._threshold.is_worth(present, wanted, loaded_rate) else Verdict.BY_CHANCE

    def achieved(self, score: Score) -> float:
        """What the interval really brought; the seconds until the next decision (equation 8)."""
        if self._estimate is None:
            return self.interval.seconds
        return self.interval.adapt(self._estimate.normalized_latency, score.normalized_latency)


def loads(present: Plan, wanted: Plan) -> list[str]:
    """The services of the copies of weights that have to be loaded to get from one plan to the other."""
    held = {(group.id, group.num_devices): group.services for group in present.groups}
    return [
        service
        for group in wanted.groups
        for service in group.services
        if service not in held.get((group.id, group.num_devices), ())
    ]
