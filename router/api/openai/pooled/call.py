"""One call for vectors or scores: its texts run side by side, some at a time, until all have ended or one fails.

How many at a time follows what they take: a call of two thousand texts must neither break its own promises nor push
others out. A text that is refused while others of its call are in flight is sent again, with fewer beside it. A text
that is refused alone is refused for others' sake: that is the call's answer.
"""

from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from engines.models.text.text_encoder import EncodedText
from mesh.clock import Clock
from mesh.wire.requests import Pooling, RequestSpec, Sampling
from router.api.access.promises import Promise
from router.api.errors import ApiError, ClientGoneError, api_error
from router.api.http.callers import Caller
from router.api.http.disconnect import run_until
from router.api.metrics.gateway import BatchMetrics, ServiceMetrics
from router.api.openai.input.ids import CallId
from router.api.openai.pooled.model import PooledModel
from router.generation import (
    Fault,
    Generation,
    Overloaded,
    RequestFailed,
    RequestRouter,
    Route,
    RouterError,
    next_batch,
)
from router.traces.call_trace import CallFacts, CallTrace

FIRST_IN_FLIGHT: Final = 16  # texts of one call; as many more as have come early, up to the most
MOST_IN_FLIGHT: Final = 128  # enough for full batches, and other calls find room beside them
EARLY: Final = 0.5  # of its promise: what a text may take for one more to be in flight
ONE_TOKEN: Final = Sampling(max_tokens=1, seed=0, temperature=0.0, ignore_eos=True)  # which the vector comes with


@dataclass(frozen=True, slots=True)
class PooledOrder:
    """What one call asks for. ``operation``: its name in traces, and the prefix of its answer's id."""

    id: CallId
    gateway: str
    operation: str
    model: PooledModel
    name: str  # that the client called the model
    promise: Promise
    caller: Caller
    texts: Sequence[EncodedText]
    trace: CallTrace | None = None

    @property
    def num_tokens(self) -> int:
        return sum([len(text.tokens) for text in self.texts])

    @property
    def answer_id(self) -> str:
        return self.id.answer(f"{self.operation}-")

    def facts(self) -> CallFacts:
        """What its trace tells of it."""
        return CallFacts(self.id.request_id, self.answer_id, self.operation, self.name, is_stream=False, num_choices=1)

    def spec(self, index: int, number: int) -> RequestSpec:
        """Return one text as a request. ``number``: of the call's. Its promise begins when it is sent: the texts of a
        call take turns.
        """
        text, slo = self.texts[index], self.promise.slo
        return RequestSpec(
            id=self.id.choice(number),
            gateway=self.gateway,
            service=self.model.service,
            prompt=text.tokens,
            sampling=ONE_TOKEN,
            slo_ttft_s=slo.ttft_s,
            slo_tpot_s=slo.tpot_s,
            priority=self.promise.priority,
            pooling=Pooling(text.first_tokens),
            late=self.promise.late,
            cache_salt=self.caller.cache_salt,
        )


@dataclass(slots=True)
class PooledCall:
    """A call that runs."""

    order: PooledOrder
    router: RequestRouter
    metrics: ServiceMetrics | BatchMetrics
    clock: Clock
    log: FilteringBoundLogger
    route: Route | None = None
    _vectors: dict[int, bytes] = field(default_factory=dict)
    _running: deque[tuple[int, Generation]] = field(default_factory=deque)
    _room: int = FIRST_IN_FLIGHT
    _num_sent: int = 0

    @property
    def vectors(self) -> list[bytes]:
        """Return what has come, in the order of the texts."""
        return [vector for _, vector in sorted(self._vectors.items())]

    async def run(self, gone: Coroutine[Any, Any, None]) -> None:
        """Run until all texts have their vectors, or ``gone`` returns. However it ends, nothing of the call goes on.

        Raise the first `RouterError`, or `ClientGoneError` after ``gone``.
        """
        order, started_s = self.order, self.clock.now()
        charge = order.caller.begin(order.num_tokens)
        if order.trace is not None:
            order.trace.describe = order.facts
        try:
            await run_until(self._run(), gone)
            self._tell("answered", ms=round(1000 * (self.clock.now() - started_s), 3))
        except (ApiError, RouterError) as error:
            code = api_error(error).code or ""
            self.metrics.failed(code, broke_promise=not isinstance(error, ClientGoneError))
            self._tell("not answered", code=code, reason=str(error))
            raise
        finally:
            for _, generation in self._running:
                generation.cancel()
            if charge is not None:
                charge.settle(order.num_tokens)
            if order.trace is not None:
                order.trace.close()

    async def _run(self) -> None:
        left = deque(range(len(self.order.texts)))
        while left or self._running:
            self._send(left)
            await self._take(left)

    def _send(self, left: deque[int]) -> None:
        """Send as many as there is room for."""
        order = self.order
        while left and len(self._running) < self._room:
            self._num_sent += 1
            try:
                generation = self.router.submit(order.spec(left[0], self._num_sent), order.caller.tenant, order.trace)
            except Overloaded as refusal:
                self._give_way(refusal)
                return
            self._running.append((left.popleft(), generation))

    async def _take(self, left: deque[int]) -> None:
        """Wait for the vector of the text that was sent first."""
        index, generation = self._running.popleft()
        try:
            self._vectors[index] = await vector_of(generation)
        except Overloaded as refusal:
            self._give_way(refusal)
            left.appendleft(index)
            return
        except BaseException:
            generation.cancel()
            raise
        self.route = self.route or generation.route
        is_early = (generation.ttft_s or 0.0) <= EARLY * self.order.promise.slo.ttft_s
        self._room = min(self._room + 1, MOST_IN_FLIGHT) if is_early else max(1, self._room - 1)

    def _give_way(self, refusal: Overloaded) -> None:
        """A text was refused. Raise that if none of the call's own was in its way."""
        if not self._running:
            raise refusal
        self._room = len(self._running)

    def _tell(self, event: str, **more: object) -> None:
        order, route = self.order, self.route
        named: Mapping[str, str] = {} if order.trace is None else {"trace": order.trace.name}
        self.log.info(
            event,
            request=order.id.request_id,
            texts=len(order.texts),
            prompt_tokens=order.num_tokens,
            rule=route and route.rule,
            prefill=route and route.prefill_engine,
            **named,
            **more,
        )


async def vector_of(generation: Generation) -> bytes:
    """Return what a generation of a pooled prompt came to. Raise `RouterError` if it fails."""
    while (batch := await next_batch(generation)).vector is None:
        if batch.finish is not None:
            raise RequestFailed("the engine answered without a vector; is it of an older version?", Fault.SERVER)
    generation.finish()
    return batch.vector
