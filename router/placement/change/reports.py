"""Writes what is told of a decision: to gateways, to ``mesh plan``, to Prometheus."""

from dataclasses import dataclass, replace

from mesh.wire.placement import Decision, Forecast, ServiceForecast
from router.placement.change.replacement import Proposal, Verdict
from router.placement.observe.running_mesh import places
from router.placement.observe.traffic import Moments, Traffic
from router.placement.search.plan import Plan
from router.placement.search.question import Answer, Question
from router.placement.search.score import Score

IN_WORDS = {
    Verdict.ENOUGH: "no plan could be so much better that it were worth a change",
    Verdict.KEEP: "no better plan was found",
    Verdict.NOT_WORTH: "a better plan was found, and it is not worth the change",
    Verdict.OBSTRUCTED: "a better plan was found, and it cannot be carried out",
    Verdict.BY_CHANCE: "a better plan was found, and its gain on other samples of the same traffic may be chance",
    Verdict.PASSING: "a better plan was found, and what is asked for is likely to change before it has paid",
    Verdict.REPLACE: "a better plan was found",
}


@dataclass(frozen=True, slots=True)
class Pending:
    """An interval that is over, and the plan that was in force. ``achieved``: what became of what was asked for."""

    interval: int
    interval_s: float
    plan: int
    question: Question | None = None
    achieved: Score | None = None


def without_plan(pending: Pending, verdict: str, reason: str, search_s: float = 0.0) -> Decision:
    """Nothing was found, or nothing was searched for."""
    return Decision(
        pending.interval,
        verdict,
        reason,
        pending.plan,
        pending.interval_s,
        search_s,
        services=_services(pending, None),
        achieved=_forecast(pending.achieved),
    )


def with_plan(pending: Pending, answer: Answer, now: Plan, number: int, search_s: float) -> Decision:
    """Add the number of a plan. ``number``: that the plan which was found has, or would have. ``now``: what engines
    hold and do, other roles than when it was searched for included.
    """
    proposal = answer.proposal
    plan = proposal.plan if pending.question is None else proposal.plan.after_flips(pending.question.present, now)
    return Decision(
        pending.interval,
        str(proposal.verdict),
        reason_of(proposal),
        pending.plan,
        pending.interval_s,
        search_s,
        places(replace(plan, number=number)),
        _services(pending, proposal),
        _forecast(pending.achieved),
        _forecast(proposal.present),
        _forecast(proposal.wanted),
        proposal.num_loads,
        list(answer.homeless.values()),
    )


def reason_of(proposal: Proposal) -> str:
    """The verdict in words."""
    said = IN_WORDS[proposal.verdict]
    if proposal.verdict is Verdict.OBSTRUCTED:
        return f"{said}: {proposal.obstacle}"
    parts = [said, *(str(one) for one in proposal.regroupings)]
    if proposal.swaps:
        parts.append(f"services give way to others on {', '.join(proposal.swaps)}, which cannot hold both")
    return "; ".join(parts)


def _services(pending: Pending, proposal: Proposal | None) -> list[ServiceForecast]:
    if pending.question is None:
        return []
    present, wanted = (None, None) if proposal is None else (proposal.present, proposal.wanted)
    asked = pending.question.asked
    return [
        ServiceForecast(
            name,
            asked.rate(name),
            *_lengths(asked, name),
            _attainment(pending.achieved, name),
            _attainment(present, name),
            _attainment(wanted, name),
            asked.dispersion(name),
        )
        for name in pending.question.catalogue.services
    ]


def _lengths(asked: Traffic, name: str) -> tuple[Moments, Moments]:
    service = asked.services.get(name)
    nothing = Moments(0.0, 0.0)
    return (nothing, nothing) if service is None else (service.num_input, service.num_output)


def _attainment(score: Score | None, name: str) -> float | None:
    service = None if score is None else score.services.get(name)
    return service.attainment if service is not None and service.num_requests else None


def _forecast(score: Score | None) -> Forecast | None:
    return None if score is None else Forecast(score.attainment, score.normalized_latency)
