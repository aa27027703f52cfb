"""Defines a search's question and answer: made of what was heard of a mesh, answered anywhere, at any time."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from engines.costs.linear import serving_s
from mesh.topology.schema import Slo
from mesh.wire.status import EngineStatus
from router.placement.change.obstacles import Obstacles
from router.placement.change.replacement import EvaluatorFor, Proposal, Verdict, judge, risk_of
from router.placement.observe.conduct import Conduct
from router.placement.observe.device_ways import DeviceWays
from router.placement.observe.interval import Threshold
from router.placement.observe.requirements import Catalogue, Cluster, check_fits
from router.placement.observe.running_mesh import catalogue_of, cluster_of, with_weights
from router.placement.observe.service_monitor import Observed
from router.placement.observe.shifts import NO_SHIFTS, Shifts
from router.placement.observe.traffic import Traffic
from router.placement.search.chance import num_samples
from router.placement.search.evaluators import Evaluators
from router.placement.search.plan import Plan
from router.placement.search.score import Score
from router.placement.search.search import NO_OBSTACLES, Evaluator, FoundPlan, search
from router.placement.search.span import DeviceSpan

DRAWN_S = 60.0  # of traffic that plans are scored on,
LEAST_DRAWN = 200  # or longer, if it has fewer requests than that,
MOST_DRAWN = 1500  # or less, if it has more
LEAST_JUDGED = 600  # requests that the plan found is judged on, beside the present one: a minute's may be few,
LONGEST_JUDGED_S = 600.0  # if they are not longer than that
NUM_OTHERS = 8  # samples of other loads
LENGTH_DEVIATIONS = 4.0  # above the mean: the longest request that a place must have room for
NOTHING_WAITS: Mapping[str, int] = {}
LEAST_SHARING = 2  # services that may share an engine unless somebody says otherwise (SeaLLM, section 6.1)


@dataclass(frozen=True, slots=True)
class Question:
    """Asks whether another plan than the ``present`` one is worth the change, for requests like those of ``asked``.

    Engines stay as they are but for the spans of ``cluster``, which has those of ``present``. They serve as they do
    now, by ``conduct``. Local search takes ``improve_s``. A plan that has ``obstacles`` is told of at best. ``risk``:
    of a change that is worth it by chance only. ``shifts``: what comes until the next plan.
    """

    number: int
    present: Plan
    cluster: Cluster
    catalogue: Catalogue
    asked: Traffic
    slos: Mapping[str, Slo]
    conduct: Conduct
    threshold: Threshold
    improve_s: float
    seed: int = 0
    obstacles: Obstacles = NO_OBSTACLES
    risk: float = risk_of(1)
    shifts: Shifts = NO_SHIFTS

    def drawn(self, least: int = LEAST_DRAWN) -> Traffic:
        """Draw so many requests, or those of a minute, with the rates and the moments of lengths that were seen."""
        return Traffic(self._span_s(least), self.asked.services).drawn_anew(self.seed).with_short_queues()

    def samples(self) -> Iterator[Traffic]:
        """Others, with rates and lengths that may be as well, that tell a gain from chance."""
        span_s, first = self._span_s(LEAST_DRAWN), f"{self.seed}/sample"
        unsure = (self.asked.drawn_unsure(span_s, f"{first} {number}") for number in range(num_samples(self.risk)))
        return (sample.with_short_queues() for sample in unsure)

    def others(self) -> Iterator[Traffic]:
        """Samples of other loads, if any may come until the next plan."""
        span_s, first = self._span_s(LEAST_DRAWN), f"{self.seed}/other"
        for number, load in enumerate(self.shifts.others(self.asked, NUM_OTHERS, first)):
            yield Traffic(span_s, load.services).drawn_anew(f"{first} {number}")

    def _span_s(self, least: int) -> float:
        rate = sum(service.rate for service in self.asked.services.values())
        span_s = DRAWN_S if rate * DRAWN_S <= MOST_DRAWN else MOST_DRAWN / rate
        if least > rate * span_s > 0:
            span_s = min(least / rate, LONGEST_JUDGED_S)
        return span_s

    def may_gain(self, held: Score, ideal: Score) -> bool:
        """Return whether a change could be worth it: if there is a service without a place, or the ideal is so much
        better.
        """
        is_homeless = not self.present.services >= set(self.catalogue.services)
        return is_homeless or self.threshold.is_worth(held, ideal, loaded_rate=0.0)

    def achieved(self, observed: Observed) -> Score:
        """Return what became of the requests that were seen, of services that are in question."""
        alone_s = {name: _alone_s(self.catalogue, self.asked, name) for name in self.asked.services}
        return observed.score(alone_s, {name: self.slos[name].attainment for name in self.asked.services})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a search. ``homeless``: services without a place in the plan that was found, and why."""

    proposal: Proposal
    homeless: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SearchFailed:
    """There is no answer. ``reason`` has a line for each fault."""

    reason: str


def make_question(
    number: int,
    present: Plan,
    known: Iterable[EngineStatus],
    observed: Observed,
    slos: Mapping[str, Slo],
    conduct: Conduct,
    *,
    services: Iterable[str] = (),
    threshold: Threshold | None = None,
    improve_s: float = 0.0,
    max_services: int | None = None,
    seed: int = 0,
    obstacles: Obstacles = NO_OBSTACLES,
    num_intervals: int = 1,
    waiting: Mapping[str, int] = NOTHING_WAITS,
    ways: DeviceWays | None = None,
    shifts: Shifts = NO_SHIFTS,
) -> Question:
    """Make a question of what was heard. ``services`` are to be placed, too, if there is none of them yet. ``known``
    tells what services cost.

    ``num_intervals``: in which services were asked for the same as they are ``observed`` to be. ``waiting``: requests
    of each that wait now. ``ways``: None, if engines stay as they are.
    """
    traffic = observed.traffic()
    longest = {name: _longest(traffic, name) for name in present.services | set(services)}
    most = max_services or max(LEAST_SHARING, *(len(group.services) for group in present.groups))
    catalogue, spans = catalogue_of(known, longest, most), tuple[DeviceSpan, ...]()
    if ways is not None:
        catalogue = ways.complete(catalogue, longest)
        spans = ways.usable(present, catalogue)
        obstacles = ways.obstacles(obstacles, present, spans)
    catalogue = with_weights(catalogue, obstacles, present, spans)
    asked = traffic.only(catalogue.services).with_waiting(waiting)
    return Question(
        number,
        present,
        cluster_of(present, spans),
        catalogue,
        asked,
        slos,
        conduct,
        threshold or Threshold(),
        improve_s,
        seed,
        obstacles,
        risk_of(num_intervals),
        shifts,
    )


def answer(question: Question, evaluators: Evaluators, is_over: Callable[[int], bool]) -> Answer:
    """Raise `PlacementError` for services that fit nowhere. ``is_over``: see `router.placement.search.improve`.

    Nothing is searched for where even the best that there could be would not be worth a change.
    """
    check_fits(question.catalogue, question.cluster)
    evaluator_for, present = _evaluators_of(question, evaluators), question.present
    judged, traffic = question.drawn(LEAST_JUDGED), question.drawn()
    judge_of = evaluator_for(judged)
    [held] = judge_of.exact([present])
    if not question.may_gain(held, judge_of.ideal()):
        return Answer(Proposal(present, Verdict.ENOUGH, held, held, 0), {})
    random = Random(question.seed)
    found = search(
        question.cluster,
        question.catalogue,
        traffic,
        evaluator_for(traffic),
        random,
        is_over,
        present,
        question.obstacles,
    )
    return Answer(_proposal(question, found, judged, evaluator_for), found.homeless)


def _proposal(question: Question, found: FoundPlan, judged: Traffic, evaluator_for: EvaluatorFor) -> Proposal:
    """The best plan that can be had; if that is not worth the change, one that cannot be had and would be."""

    def judge_of(plan: Plan) -> Proposal:
        return judge(
            question.present,
            plan,
            judged,
            question.threshold,
            evaluator_for,
            question.samples(),
            question.risk,
            question.obstacles,
            question.cluster.spans,
            question.others(),
            question.shifts.stays,
        )

    proposal = judge_of(found.best.plan)
    if proposal.verdict is Verdict.REPLACE or found.beyond is None:
        return proposal
    beyond = judge_of(replace(found.beyond, number=found.best.plan.number))
    return beyond if beyond.verdict is Verdict.OBSTRUCTED else proposal


def _evaluators_of(question: Question, evaluators: Evaluators) -> EvaluatorFor:
    """One for each traffic: what was simulated for it once is known."""
    made: list[tuple[Traffic, Evaluator]] = []

    def evaluator_for(wanted: Traffic) -> Evaluator:
        known = next((evaluator for traffic, evaluator in made if traffic == wanted), None)
        if known is not None:
            return known
        made.append((wanted, evaluators.evaluator(question.catalogue, wanted, question.slos, question.conduct)))
        return made[-1][1]

    return evaluator_for


def time_is_over(improve_s: float) -> Callable[[int], bool]:
    """Return a stop condition for local search, whose time begins when it is first asked."""
    until: list[float] = []

    def is_over(_: int) -> bool:
        if not until:
            until.append(time.monotonic() + improve_s)
        return time.monotonic() >= until[0]

    return is_over


def _longest(asked: Traffic, service: str) -> int:
    traffic = asked.services.get(service)
    if traffic is None:
        return 1
    both = (traffic.num_input, traffic.num_output)
    return round(sum(moments.mean + LENGTH_DEVIATIONS * moments.deviation for moments in both)) + 1


def _alone_s(catalogue: Catalogue, asked: Traffic, service: str) -> float:
    """The execution time of a mean request."""
    by_size = catalogue.footprints[service]
    cost, traffic = by_size[min(by_size)].profile, asked.services[service]
    num_input, num_output = traffic.num_input.mean, traffic.num_output.mean
    return serving_s(cost.prefill, cost.decode, 1, round(num_input) or 1, max(0, round(num_output) - 1))
