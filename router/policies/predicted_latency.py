"""Predicted latency: by lot among engines that are predicted to keep both promises, as llm-d's router has it.

What counts is the margin of each promise: ``buffer`` of it, less the prediction. Where engines are split by phase, a
prefill engine is chosen by its margin of TTFT and a decode engine by its margin of TPOT. Where they are not, margins
are scaled to 0 to 1 over the engines and weighed 0.8 to 0.2. Of engines that keep the promises, one is drawn: the
smaller its margin the likelier (``prefer = "least"``, which packs), or the larger (``"most"``). If none keeps them, an
idle one is drawn, else one that misses by little. A prompt that is mostly cached stays with the engines that
have it, unless they would be much later. What may be shed (a priority below 0) is refused rather than served late.

Sources: llm-d/llm-d-router (``latency-scorer``, ``prefix-cache-affinity-filter``, ``slo-headroom-tier-filter``,
``weighted-random-picker``, ``latency-slo-admitter``), #511 there, and llm-d/llm-d#2048 for engines split by phase.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from mesh.wire.control import PrefillOrder
from router.policies.capabilities import UsesPrefixes
from router.policies.parts.candidates import find_candidates, route
from router.policies.parts.outlook import own_work_s
from router.policies.policy import Decision, GiveUp, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView

WARM: Final = 0.8  # the share of a prompt that an engine has cached to be preferred for that
MOST_LATER_S: Final = 5.0  # than the engine that would be first, for one that has it cached
EXPLORED: Final = 0.01  # of requests go where no prediction would send them, so that it can be corrected
TTFT_WEIGHT: Final = 0.8  # beside TPOT, where one engine serves both phases
LEAST_WEIGHT: Final = 0.01  # of an engine in a lot


class PredictedLatencyParameters(msgspec.Struct, frozen=True):
    """``buffer``: the fraction of a promise that predictions may use up.

    ``prefer``: of engines that keep the promises, those with the least margin, or those with the most.
    """

    buffer: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    prefer: Literal["least", "most"] = "least"


class _Option(NamedTuple):
    """An engine, and what it would leave of the promises that count for it, in seconds."""

    engine: EngineView
    margins_s: tuple[float, ...]
    ttft_s: float

    @property
    def keeps(self) -> bool:
        return min(self.margins_s) >= 0


class PredictedLatency(Policy, UsesPrefixes):
    name = "predicted_latency"

    def __init__(self, parameters: PredictedLatencyParameters, random: Random) -> None:
        self._buffer = parameters.buffer
        self._packs = parameters.prefer == "least"
        self._random = random

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engines = found.prefill or found.prefill_engines
        options = [self._option(request, engine, found.keeps(engine), now) for engine in prefill_engines]
        if request.priority < 0 and not any(one.keeps or not one.engine.num_requests for one in options):
            return GiveUp("no engine would keep its promises, and its priority is below 0")
        prefill = self._draw(self._warm(request, options))
        decode_engine = prefill.engine
        if not found.keeps(prefill.engine):
            margins = [_Option(e, (self._tpot_margin_s(request, e),), 0.0) for e in found.decode]
            decode_engine = self._draw(margins).engine
        return route(
            request,
            "drawn from those in time" if prefill.keeps else "late everywhere",
            prefill.engine,
            decode_engine,
            now,
            order=PrefillOrder.ARRIVAL,
            predicted_ttft_s=prefill.ttft_s,
            numbers={"margin_s": min(prefill.margins_s)},
        )

    def _option(self, request: RequestView, engine: EngineView, keeps: bool, now: float) -> _Option:
        ttft_s = engine.wait_s(request.service, now) + own_work_s(engine, request)
        promise_s = request.deadline - request.arrived_at
        margin_s = self._buffer * promise_s - (now - request.arrived_at) - ttft_s
        margins_s = (margin_s, self._tpot_margin_s(request, engine)) if keeps else (margin_s,)
        return _Option(engine, margins_s, ttft_s)

    def _tpot_margin_s(self, request: RequestView, engine: EngineView) -> float:
        return self._buffer * request.tpot_slo_s - engine.joined_step_s(request.service, request.num_tokens)

    def _warm(self, request: RequestView, options: Sequence[_Option]) -> Sequence[_Option]:
        """Those that have most of its prompt, unless there are none, they would be much later, or it explores."""
        warm = [one for one in options if request.cached.get(one.engine.id, 0) >= WARM * request.num_tokens]
        if not warm or self._random.random() < EXPLORED:
            return options
        first_s, first_warm_s = (min(one.ttft_s for one in those) for those in (options, warm))
        return options if first_warm_s > first_s + MOST_LATER_S else warm

    def _draw(self, options: Sequence[_Option]) -> _Option:
        keeping = [one for one in options if one.keeps]
        late = [one for one in options if not one.keeps]
        if keeping and (not late or self._random.random() >= EXPLORED):
            return self._by_lot(keeping, lambda share: 1 - share if self._packs else share)
        idle = [one for one in late if not one.engine.num_requests]
        return self._by_lot(idle or late, lambda share: share)

    def _by_lot(self, options: Sequence[_Option], score: Callable[[float], float]) -> _Option:
        weights = [LEAST_WEIGHT + score(share) for share in _shares([one.margins_s for one in options])]
        return self._random.choices(options, weights)[0]


def _shares(margins_s: Sequence[tuple[float, ...]]) -> list[float]:
    """Margins from the smallest, 0, to the largest, 1. Of two promises, one in which all are equal does not count."""
    spans = [(min(one), max(one)) for one in zip(*margins_s, strict=True)]
    weights = [1.0] if len(spans) == 1 else [TTFT_WEIGHT, 1 - TTFT_WEIGHT]
    weights = [weight if most > least else 0.0 for weight, (least, most) in zip(weights, spans, strict=True)]
    total = sum(weights)
    if not total:
        return [0.5] * len(margins_s)
    return [
        sum(
            weight / total * (margin - least) / (most - least)
            for weight, margin, (least, most) in zip(weights, margins, spans, strict=True)
            if weight
        )
        for margins in margins_s
    ]


ENTRY = PolicyEntry("predicted_latency", PredictedLatency, PredictedLatencyParameters)
