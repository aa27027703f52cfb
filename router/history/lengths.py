"""Predicts the lengths of answers from those that ended, by service and length of the prompt.

Aladdin (section 2.3) predicts the mean answer of past requests with a similar prompt. That costs next to nothing, needs
no second model, and has no bias, so that in a batch errors cancel out. A request that outgrows its prediction gets the
mean of those that are longer (section 4.3). Ours is a whole distribution (`router.history.length_histogram`), so there
are quantiles, and answers that were cut short do not bend it. Prompts are similar whose lengths differ by less than the
square root of two. For a length that was rarely seen, the next shorter and longer ones count, too, as `BORROWED`
answers at most. If they were not seen so often either, the service as a whole makes up for it.

Those that go on count, too: they will be longer than they are by now. The first ones that end are the short ones, so
without them predictions would be far too short for as long as an answer takes.

Without history an answer is predicted to be as long as it may be (``max_tokens``), which is safe: nothing is packed
closer than it can bear. What it will hardly be shorter than is told by the ``usual`` answer of its service until then,
as if lengths were geometric: that knows nothing of a length but its mean.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import log, log2
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from mesh.topology.schema import Topology
from mesh.wire.requests import FinishReason, RequestSpec
from router.history.length_histogram import LengthDistribution, LengthHistogram

BORROWED = 8.0
FRESH = 1.02  # a distribution is worked out anew after so many times as many answers
MOST_STEPS = 8  # of a prediction and those that follow it when it is outgrown
MOST_LEAST = 16  # the same of answers that will hardly be shorter
MOST_KEPT = 64  # predictions by limit, for each length of prompts


class AskedLength(NamedTuple):
    """The longest answer that a request allows. ``is_exact``: it will be as long as that."""

    limit: int
    is_exact: bool


def asked_of(spec: RequestSpec) -> AskedLength:
    """Return what a request asks for, by what its client said."""
    return AskedLength(spec.sampling.max_tokens, spec.sampling.ignore_eos)


def usual_answers(topology: Topology) -> dict[str, int]:
    """Return the tokens of a usual answer, by service, as a topology tells them."""
    return {service.name: service.usual_answer for service in topology.offered}


class Prediction(NamedTuple):
    """Tokens of an answer, of the ``limit`` that it is cut at.

    ``steps``: its mean; the mean of those that are longer than that; and so on up to the limit.
    """

    steps: tuple[int, ...]
    p50: int
    p90: int
    limit: int
    is_exact: bool

    @classmethod
    def exactly(cls, limit: int) -> "Prediction":
        """It has as many as it may have."""
        return cls((limit,), limit, limit, limit, is_exact=True)


@dataclass(slots=True)
class Calibration:
    """How predictions of one service turned out. What a client broke off proves nothing and is not counted."""

    num_judged: int = 0
    num_within_p50: int = 0
    num_within_p90: int = 0
    predicted_tokens: int = 0
    tokens: int = 0

    def judge(self, prediction: Prediction, num_tokens: int) -> None:
        self.num_judged += 1
        self.num_within_p50 += num_tokens <= prediction.p50
        self.num_within_p90 += num_tokens <= prediction.p90
        self.predicted_tokens += prediction.steps[0]
        self.tokens += num_tokens


@dataclass(slots=True)
class _Similar:
    """Answers to prompts of similar lengths, and what was worked out of them when there were ``num_then``."""

    histogram: LengthHistogram = field(default_factory=LengthHistogram)
    num_seen: int = 0
    distribution: LengthDistribution | None = None
    num_then: int = 0
    kept: dict[tuple[int, float | None], Prediction] = field(default_factory=dict)
    least: dict[tuple[int, float], tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    """Answers that go on, by the kind of their prompts, when ``num_then`` had ended."""

    all: LengthHistogram = field(default_factory=LengthHistogram)
    similar: dict[int, LengthHistogram] = field(default_factory=dict)
    num_then: int = 0


@dataclass(slots=True)
class _Service:
    """``all``: of all lengths of prompts."""

    all: LengthHistogram = field(default_factory=LengthHistogram)
    num_seen: int = 0
    similar: dict[int, _Similar] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    running: _Running = field(default_factory=_Running)


class LengthPredictor:
    """Predicts answer lengths in one gateway. ``asked``: what a request allows; memory is bounded by the number of
    services.

    ``usual``: tokens of a usual answer, by service.
    """

    def __init__(
        self,
        asked: Callable[[RequestSpec], AskedLength] = asked_of,
        usual: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._asked = asked
        self._usual = usual
        self._services: dict[str, _Service] = {}
        self._running: Callable[[], Iterable[tuple[RequestSpec, int]]] = tuple

    def watch(self, running: Callable[[], Iterable[tuple[RequestSpec, int]]]) -> None:
        """Ask ``running`` for the answers that go on, with the tokens that each has: they will be longer than that."""
        self._running = running

    def __repr__(self) -> str:
        seen = {name: service.num_seen for name, service in self._services.items()}
        return f"<LengthPredictor has seen {seen}>"

    def calibration(self) -> dict[str, Calibration]:
        """Return the calibration by service."""
        return {name: service.calibration for name, service in self._services.items()}

    def predict(self, spec: RequestSpec, quantile: float | None = None) -> Prediction:
        """Predict an answer's length. With ``quantile``, steps are that quantile instead of the mean, each of those
        that outgrew the one before. One without promises is taken to be as long as it may be.
        """
        limit, is_exact = self._asked(spec)
        if is_exact or spec.is_filler:
            return Prediction.exactly(limit)
        _, similar, distribution = self._known_of(spec)
        known = similar.kept.get((limit, quantile))
        if known is None:
            if len(similar.kept) >= MOST_KEPT:
                similar.kept.clear()
            known = similar.kept[limit, quantile] = _predict(distribution, limit, quantile)
        return known

    def least(self, spec: RequestSpec, quantile: float) -> tuple[int, ...]:
        """Return tokens that its answer will hardly be shorter than: a low ``quantile``, then that of those longer, and
        so on. Empty where too few answers were seen to tell, and nobody says what is usual.
        """
        limit, is_exact = self._asked(spec)
        if is_exact:
            return (limit,)
        service, similar, distribution = self._known_of(spec)
        if service.num_seen * quantile < 1:
            return _of_usual(self._usual.get(spec.asked, 0), limit, quantile)
        known = similar.least.get((limit, quantile))
        if known is None:
            if len(similar.least) >= MOST_KEPT:
                similar.least.clear()
            known = similar.least[limit, quantile] = _least(distribution, limit, quantile)
        return known

    def foretell(
        self, spec: RequestSpec, prediction: Prediction, quantile: float | None, least: float | None
    ) -> RequestSpec:
        """Write the length of its answer into the request, as it is `predict`ed with the ``quantile`` and will be at
        `least`, for policies and engines. What it says itself counts.
        """
        if spec.expected:
            return spec
        steps = prediction.steps if quantile is None else self.predict(spec, quantile).steps
        at_least = () if least is None else self.least(spec, least)
        return msgspec.structs.replace(spec, expected=steps, at_least=at_least)

    def _known_of(self, spec: RequestSpec) -> tuple[_Service, _Similar, LengthDistribution]:
        """What is known of its service, of prompts like its own, and of the lengths of their answers."""
        service, similar, kind = self._seen_of(spec)
        if similar.distribution is None or service.num_seen > FRESH * similar.num_then:
            parts = _parts(service, self._running_of(spec.asked, service), kind)
            similar.distribution = LengthDistribution(parts, service.num_seen)
            similar.num_then = service.num_seen
            similar.kept.clear()
            similar.least.clear()
        return service, similar, similar.distribution

    def _running_of(self, name: str, service: _Service) -> _Running:
        """The last ones, unless too much was seen since then."""
        known = service.running
        if service.num_seen > FRESH * known.num_then:
            known = service.running = _Running(num_then=service.num_seen)
            for spec, num_tokens in self._running():
                if spec.asked == name and num_tokens and not self._asked(spec).is_exact:
                    for histogram in (known.all, known.similar.setdefault(_kind(spec), LengthHistogram())):
                        histogram.add(num_tokens, is_whole=False)
        return known

    def _seen_of(self, spec: RequestSpec) -> tuple[_Service, _Similar, int]:
        """What was seen of its service, of prompts like its own, and of which kind these are."""
        service = self._services.get(spec.asked)
        if service is None:
            service = self._services[spec.asked] = _Service()
        kind = _kind(spec)
        similar = service.similar.get(kind)
        if similar is None:
            similar = service.similar[kind] = _Similar()
        return service, similar, kind

    def ended(self, spec: RequestSpec, prediction: Prediction, num_tokens: int, finish: FinishReason | None) -> None:
        """An answer of so many tokens is over. ``finish``: None if something else than its end ended it."""
        if prediction.is_exact:
            return
        is_cut = num_tokens >= prediction.limit and finish is not FinishReason.STOP
        is_whole = finish in (FinishReason.STOP, FinishReason.LENGTH) and not is_cut
        service, similar, _ = self._seen_of(spec)
        if is_whole or is_cut:
            service.calibration.judge(prediction, num_tokens)
        if is_whole or num_tokens > 0:
            for histogram in (service.all, similar.histogram):
                histogram.add(num_tokens, is_whole=is_whole)
            service.num_seen += 1
            similar.num_seen += 1


def _kind(spec: RequestSpec) -> int:
    """Return the kind of a prompt by its length: there are two for each power of two."""
    return int(2 * log2(max(1, len(spec.prompt))))


def _parts(service: _Service, running: _Running, kind: int) -> list[tuple[LengthHistogram, float]]:
    """What tells of prompts of a kind, and how often each counts."""
    near = [other for other in (kind - 1, kind + 1) if other in service.similar]
    weight = sum(service.similar[other].histogram.weight for other in near)
    share = min(1.0, BORROWED / weight) if weight else 0.0
    rest = (BORROWED - share * weight) / service.all.weight if service.all.weight else 0.0
    counted = [(kind, 1.0), *((other, share) for other in near)]
    ended = [(service.similar[other].histogram, scale) for other, scale in counted]
    going_on = [(running.similar[other], scale) for other, scale in counted if other in running.similar]
    return [*ended, (service.all, rest), *going_on, (running.all, rest)]


def _predict(distribution: LengthDistribution, limit: int, quantile: float | None) -> Prediction:
    def longer_than(length: int) -> int:
        if quantile is not None:
            return distribution.quantile(quantile, limit, length)
        return max(length + 1, round(distribution.mean(limit, length)))

    steps = [longer_than(0)]
    while steps[-1] < limit and len(steps) < MOST_STEPS - 1:
        steps.append(longer_than(steps[-1]))
    if steps[-1] < limit:
        steps.append(limit)
    p50, p90 = (distribution.quantile(share, limit) for share in (0.5, 0.9))
    return Prediction(tuple(steps), p50, p90, limit, is_exact=False)


def _of_usual(usual: int, limit: int, quantile: float) -> tuple[int, ...]:
    """Quantiles of a geometric distribution with that mean, each of the answers longer than the one before."""
    step = max(1, round(-log(1 - quantile) * usual))
    return (
        tuple(min(limit, step * number) for number in range(1, MOST_LEAST + 1) if step * (number - 1) < limit)
        if usual
        else ()
    )


def _least(distribution: LengthDistribution, limit: int, quantile: float) -> tuple[int, ...]:
    """Up to where nothing is known of longer answers."""
    steps = [distribution.quantile(quantile, limit)]
    while steps[-1] < limit and len(steps) < MOST_LEAST:
        steps.append(distribution.quantile(quantile, limit, steps[-1]))
    return tuple(steps if steps[-1] < limit else steps[:-1])
