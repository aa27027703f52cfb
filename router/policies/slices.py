"""SCLS: the gateway pools requests, forms static batches, and levels the engines; a batch runs for one slice.

What waits here is the paper's request pool. Every interval all of it is batched so that the batches take the least time
together (`engines.scheduling.slices.batching`), and each batch goes to the least loaded engine, the longest first. An
engine runs it for ``slice_tokens`` iterations at most; what has ended is answered, the rest comes back and is batched
anew, with what has arrived meanwhile. Engines are to have ``scheduling = "static"``. See docs/concepts/slices.md.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from typing import Annotated, Literal

import msgspec

from engines.scheduling.slices.batch_dispatch import Loads, interval_s, offload_max_min
from engines.scheduling.slices.batching import form_batches
from engines.scheduling.slices.estimates import Rules, SliceEstimator
from mesh.wire.control import PrefillOrder, ProcessState
from router.policies.capabilities import FollowsRequests, ForAlikeEngines, PlansRounds, ReordersQueue
from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView

AboveZero = Annotated[float, msgspec.Meta(gt=0)]


class SlicesParameters(msgspec.Struct, frozen=True):
    """``slice_tokens``: S, the tokens that a request generates before it comes back.

    ``interval_s``: Gamma, the least time between two rounds of batching.
    ``factor``: lambda, the share of the least load of an engine that the interval grows to; 0 keeps it fixed.
    ``zeta``: the share of KV memory that a batch may fill.
    ``batch_limit``: the most requests in a batch, whatever memory would hold; 0 leaves that to memory.
    ``batch_rules``: pairs of tokens (longest input, and slice) and the most requests in such a batch.
    ``batching``: time forms batches that take the least time; none sends each request at once and by itself.
    ``balancing``: max_min goes by predicted load, round_robin in turns.
    """

    slice_tokens: Annotated[int, msgspec.Meta(ge=1)] = 128
    interval_s: AboveZero = 3.0
    factor: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    zeta: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    batch_limit: Annotated[int, msgspec.Meta(ge=0)] = 0
    batch_rules: tuple[tuple[int, int], ...] = ()
    batching: Literal["time", "none"] = "time"
    balancing: Literal["max_min", "round_robin"] = "max_min"


class _Batch(msgspec.Struct):
    """``members`` that have not left; ``until_s``: predicted, until it is done, when it was given to ``engine``."""

    engine: str
    size: int
    longest: int
    serving_s: float
    until_s: float
    members: set[str]


class Slices(Policy, ForAlikeEngines, ReordersQueue, FollowsRequests):
    name = "slices"

    def __init__(self, parameters: SlicesParameters) -> None:
        self._rounds = PlansRounds()
        self.capabilities = (self._rounds,) if parameters.batching == "time" else ()
        self._parameters = parameters
        self._numbers = count(1)
        self._batches: dict[int, _Batch] = {}
        self._batch_of: dict[str, int] = {}  # by request
        self._chosen: dict[str, int] = {}  # batches of requests that are about to be sent
        self._loads = Loads[int]()
        self._last = ""  # the engine whose turn was last

    # --- a round of batching ------------------------------------------------------------------------------------------

    def rank(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[RequestView]:
        if self._parameters.batching == "none":
            return waiting
        for unsent in list(self._chosen):
            self.left(unsent)
        by_service: defaultdict[str, list[RequestView]] = defaultdict(list)
        for request in waiting:
            by_service[request.service].append(request)
        serving_s: dict[int, dict[str, float]] = {}
        for service, requests in by_service.items():
            serving_s |= self._form(service, requests, view)
        self._offload(serving_s)
        engines = self._rounds.begin(by_service, view)
        self._rounds.opens_at = now + interval_s(
            self._loads, engines, self._parameters.factor, self._parameters.interval_s
        )
        return sorted(waiting, key=lambda request: self._chosen.get(request.id, inf))

    def _form(self, service: str, requests: Sequence[RequestView], view: ClusterView) -> Mapping[int, dict[str, float]]:
        """Batches of one service, by number, and how long each takes on each engine. Short of memory is the smallest
        engine's; what is too long for it is batched as if it filled it, and goes where it fits.
        """
        engines, most = view.serving(service), self._parameters.batch_limit or None
        if not engines:
            return {}
        estimators = {engine.id: self._estimator(engine, service) for engine in engines}
        slots = {engine.id: engine.services[service].num_slots for engine in engines}
        smallest = min(slots, key=slots.__getitem__)
        formed: dict[int, dict[str, float]] = {}
        for members, _ in form_batches([one.num_tokens for one in requests], estimators[smallest], most):
            number, longest = next(self._numbers), requests[members[-1]].num_tokens
            ids = {requests[index].id for index in members}
            self._batches[number] = _Batch("", len(ids), longest, 0.0, 0.0, ids)
            for request in ids:
                self._batch_of[request] = self._chosen[request] = number
            formed[number] = {
                engine: estimator.serving_s(len(ids), longest) if longest < slots[engine] else inf
                for engine, estimator in estimators.items()
            }
        return formed

    def _estimator(self, engine: EngineView, service: str) -> SliceEstimator:
        parameters, there = self._parameters, engine.services[service]
        rules: Rules = parameters.batch_rules
        slots, tokens = there.num_slots, parameters.slice_tokens
        return SliceEstimator(there.prefill_cost, there.decode_cost, slots, tokens, parameters.zeta, rules)

    def _offload(self, serving_s: Mapping[int, Mapping[str, float]]) -> None:
        """Services whose engines are the same are levelled together."""
        groups: defaultdict[frozenset[str], dict[int, Mapping[str, float]]] = defaultdict(dict)
        for number, by_engine in serving_s.items():
            groups[frozenset(by_engine)][number] = by_engine
        for engines, group in groups.items():
            if self._parameters.balancing == "max_min":
                chosen = offload_max_min({one: by.__getitem__ for one, by in group.items()}, engines, self._loads)
            else:
                chosen = {number: self._take_turn(sorted(engines)) for number in group}
                for number, engine in chosen.items():
                    self._loads.add(number, engine, group[number][engine])
            for number, engine in chosen.items():
                batch = self._batches[number]
                batch.engine, batch.serving_s = engine, group[number][engine]
                batch.until_s = self._loads.of(engine)

    def _take_turn(self, engines: Sequence[str]) -> str:
        self._last = next((engine for engine in engines if engine > self._last), engines[0])
        return self._last

    # --- one request --------------------------------------------------------------------------------------------------

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            self.left(request.id)
            return found
        if self._parameters.batching == "none":
            engines = {engine.id: engine for engine in view.serving(request.service)}
            return self._alone(request, engines[self._take_turn(sorted(engines))], now)
        number = self._chosen.pop(request.id, None)
        if number is None:
            return Wait("the next batches are not formed yet")
        batch = self._batches[number]
        engine = view.engines.get(batch.engine)
        if engine is None or engine.state is not ProcessState.READY:
            self.left(request.id)
            return Wait(f"{batch.engine}, whose batch it was in, takes no requests now")
        numbers = {
            "batch_size": batch.size,
            "batch_tokens": batch.longest,
            "batch_s": batch.serving_s,
            "load_s": batch.until_s,
        }
        dispatch = route(
            request,
            "slice",
            engine,
            engine,
            now,
            order=PrefillOrder.ARRIVAL,
            predicted_ttft_s=batch.until_s,
            numbers=numbers,
        )
        return msgspec.structs.replace(dispatch, slice_tokens=self._parameters.slice_tokens, batch=number)

    def _alone(self, request: RequestView, engine: EngineView, now: float) -> Decision:
        dispatch = route(request, "slice", engine, engine, now, order=PrefillOrder.ARRIVAL)
        return msgspec.structs.replace(dispatch, slice_tokens=self._parameters.slice_tokens)

    def left(self, request: str) -> None:
        self._chosen.pop(request, None)
        number = self._batch_of.pop(request, None)
        batch = None if number is None else self._batches.get(number)
        if number is None or batch is None:
            return
        batch.members.discard(request)
        if not batch.members:
            del self._batches[number]
            self._loads.give_back(number)


ENTRY = PolicyEntry("slices", lambda parameters, _: Slices(parameters), SlicesParameters)
