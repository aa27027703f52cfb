"""The part of a run that counts: without its warm-up, with the bounds of its means, or with a warning instead."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.prompts.planning import Plan
from bench.load.results.goodput import Promises
from bench.load.results.outcome import Failure, Outcome
from simulation.reports.intervals import Interval, batch_means, share_interval
from simulation.reports.steadiness import Judgement, Stay, judge, judge_closed, judge_trace, refusals_warning

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Judged:
    """``counted``: the outcomes that figures are of, in order of their times. They begin at ``begin_s``."""

    counted: Sequence[Outcome]
    begin_s: float
    judgement: Judgement
    is_closed: bool

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], plan: Plan, skip_s: float | None) -> "Judged":
        """``skip_s``: what was due before does not count; None: what is warm-up does not."""
        ordered = sorted(outcomes, key=lambda one: one.due_s)
        if skip_s is not None:
            kept = [one for one in ordered if one.due_s >= skip_s]
            return cls(kept, skip_s, _judgement(kept, plan), plan.is_closed)
        judgement = _judgement(ordered, plan)
        kept = ordered[judgement.num_warm_up :]
        return cls(kept, kept[0].due_s if judgement.num_warm_up else 0.0, judgement, plan.is_closed)

    def warnings(self, rate: float | None) -> list[str]:
        steadiness = self.judgement.warning(None if rate == float("inf") else rate)
        num_refused = sum(one.failure is Failure.REFUSED for one in self.counted)
        refusals = refusals_warning(num_refused, len(self.counted)) if self.is_closed else None
        return [line for line in (steadiness, refusals) if line is not None]

    def json(self, promises: Promises | None) -> Json:
        """Under the keys of the figures that they are the bounds of. ``promises``: None if there are none."""
        figures: Json = {"steadiness": str(self.judgement.steadiness)}
        if not self.judgement.has_intervals:
            return figures
        finished = [one for one in self.counted if one.is_finished]
        found = {
            f"mean_{key}_ms": batch_means([1e3 * value for value in values if value is not None])
            for key, values in {
                "ttft": [one.ttft_s for one in finished],
                "tpot": [one.tpot_s for one in finished],
                "e2el": [one.e2el_s for one in finished],
            }.items()
        }
        if promises is not None:
            found["slo_attainment"] = share_interval([promises.is_kept(one) for one in self.counted])
        return figures | {"intervals": {key: _bounds(one) for key, one in found.items() if one is not None}}


def _judgement(ordered: Sequence[Outcome], plan: Plan) -> Judgement:
    if plan.is_closed:
        return judge_closed([one.ended_s - one.due_s if one.ttft_s is None else one.ttft_s for one in ordered])
    stays = [Stay(one.due_s, one.ended_s) for one in ordered]
    return judge(stays) if plan.is_stationary else judge_trace(stays)


def _bounds(interval: Interval) -> list[float]:
    return [interval.low, interval.high]
