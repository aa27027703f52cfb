"""Exports traces to a collector, in a thread of its own: a slow collector, or none, delays no request.

Theory of operation. The event loop puts a call that ended into a bounded queue and goes on. Once a second the thread
takes what is there, up to a bound, makes spans of it call by call, and sends them with one request. The collector may
be away. The thread then waits longer each time and tries the same again, until it gives that up. What the queue or the
collector does not take is dropped and counted.
"""

import contextvars
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

import structlog

from mesh.clock import Clock
from router.traces.call_trace import EndedCall
from router.traces.collector import CollectorAnswer, CollectorVerdict
from router.traces.sampling import KeptFor
from router.traces.span import Span
from router.traces.spans import spans_of

MAX_PENDING: Final = 1024  # calls
FLUSH_S: Final = 1.0
MAX_TRIES: Final = 5
BACKOFF_S: Final = 1.0  # after the first failure; doubles with each
CLOSE_S: Final = 5.0  # for what is left when the gateway stops

log = structlog.get_logger()


class SpanBatch(Protocol):
    """Encodes spans (`router.traces.otlp.OtlpBatch`)."""

    def add(self, trace_id: int, spans: list[Span], wall_s: float) -> None: ...

    def encode(self) -> bytes: ...


class SpanSink(Protocol):
    """Takes encoded spans (`router.traces.collector.Collector`)."""

    def send(self, body: bytes, timeout_s: float | None = None) -> CollectorAnswer: ...


class Unsent:
    """An encoded batch that the collector has not taken yet."""

    __slots__ = ("body", "num_calls", "num_spans", "num_tries")

    def __init__(self, body: bytes, num_calls: int, num_spans: int) -> None:
        self.body = body
        self.num_calls = num_calls
        self.num_spans = num_spans
        self.num_tries = 0


class TraceExporter:
    """Call `close` in the end. Each counter has one thread that writes it."""

    def __init__(
        self,
        sink: SpanSink,
        make_batch: Callable[[], SpanBatch],
        clock: Clock,
        wall_clock: Callable[[], float],
        *,
        max_per_s: int,
        flush_s: float | None = None,
        place: str = "",
    ) -> None:
        """Start the thread. ``max_per_s``: calls; ``flush_s``: between two batches, `FLUSH_S` if None; ``place``: where
        the sink is, for the log.
        """
        flush_s = FLUSH_S if flush_s is None else flush_s
        self._sink = sink
        self._make_batch = make_batch
        self._clock = clock
        self._wall_clock = wall_clock
        self._max_calls = max(1, round(max_per_s * flush_s))
        self._flush_s = flush_s
        self._place = place
        self._random = Random()
        self._pending: deque[tuple[EndedCall, KeptFor]] = deque()
        self._unsent: Unsent | None = None
        self._num_overflowed = 0  # counted by the event loop
        self._num_lost: Counter[str] = Counter()  # by reason; counted by the thread
        self._num_exported = 0
        self._has_complained = False
        self._is_closing = threading.Event()
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="traces", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<TraceExporter {len(self._pending)} pending, {self.num_exported} exported, {dict(self.num_dropped)}>"

    @property
    def num_exported(self) -> int:
        """Spans that the collector took."""
        return self._num_exported

    @property
    def num_dropped(self) -> Mapping[str, int]:
        """Calls whose traces were dropped, by reason."""
        lost = {reason: self._num_lost[reason] for reason in ("away", "refused", "broken")}
        return {"full": self._num_overflowed, **lost}

    def take(self, call: EndedCall, kept_for: KeptFor) -> None:
        """Take a call that is to be exported. It never waits."""
        if len(self._pending) < MAX_PENDING:
            self._pending.append((call, kept_for))
        else:
            self._num_overflowed += 1

    def close(self) -> None:
        """Export what is left, unless that takes longer than `CLOSE_S`."""
        self._is_closing.set()
        self._thread.join(CLOSE_S)
        if (num_lost := self._num_left) > 0:
            log.warning("traces were not exported in time", collector=self._place, num_lost=num_lost)

    @property
    def _num_left(self) -> int:
        return len(self._pending) + (0 if self._unsent is None else self._unsent.num_calls)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = self._flush_s
        while not self._is_closing.wait(pause_s):
            pause_s = self._turn()
        ends_at = time.monotonic() + CLOSE_S
        while self._num_left and (left_s := ends_at - time.monotonic()) > 0:
            self._turn(left_s)

    def _turn(self, timeout_s: float | None = None) -> float:
        """Send the next batch. Returns how long to wait until the next turn, in seconds."""
        if self._unsent is None:
            self._unsent = self._next_batch()
        unsent = self._unsent
        if unsent is None:
            return self._flush_s
        answer = self._sink.send(unsent.body, timeout_s)
        unsent.num_tries += 1
        if answer.verdict is CollectorVerdict.TAKEN:
            self._num_exported += unsent.num_spans
            self._unsent = None
            self._recover()
            return self._flush_s
        self._complain(answer.reason)
        if answer.verdict is CollectorVerdict.AWAY and unsent.num_tries < MAX_TRIES:
            return float(BACKOFF_S * 2 ** (unsent.num_tries - 1)) if timeout_s is None else 0.0
        self._num_lost["away" if answer.verdict is CollectorVerdict.AWAY else "refused"] += unsent.num_calls
        self._unsent = None
        return self._flush_s

    def _next_batch(self) -> Unsent | None:
        """Encode what waits, up to the bound. Others get the interpreter between any two calls."""
        wall_s = self._wall_clock() - self._clock.now()
        batch, num_calls, num_spans = self._make_batch(), 0, 0
        for _ in range(min(len(self._pending), self._max_calls)):
            call, kept_for = self._pending.popleft()
            try:
                spans = spans_of(call, kept_for, self._next_id)
                batch.add(call.trace_id, spans, wall_s)
            except Exception:
                self._num_lost["broken"] += 1
                log.exception("a trace could not be made", request=call.facts.request_id)
                continue
            num_calls, num_spans = num_calls + 1, num_spans + len(spans)
            time.sleep(0)
        return Unsent(batch.encode(), num_calls, num_spans) if num_calls else None

    def _next_id(self) -> int:
        return self._random.getrandbits(64) or 1

    def _complain(self, reason: str) -> None:
        """Once, until spans are taken again."""
        if not self._has_complained:
            self._has_complained = True
            log.warning("the collector does not take traces", collector=self._place, reason=reason)

    def _recover(self) -> None:
        if self._has_complained:
            self._has_complained = False
            log.info("the collector takes traces again", collector=self._place, dropped=dict(self.num_dropped))
