"""What ended gets to the collector, or is dropped and counted; nobody waits for it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from structlog.testing import capture_logs

from mesh.clock import SystemClock
from mesh.wire.requests import FinishReason
from router.traces import exporter as module
from router.traces.call_trace import EndedCall
from router.traces.collector import CollectorAnswer, CollectorVerdict
from router.traces.exporter import TraceExporter
from router.traces.sampling import KeptFor
from router.traces.span import Span
from tests.router.cluster import M0
from tests.router.requests.dispatching import World
from tests.router.traces.worlds import call_of, timeline_of

TAKEN, AWAY, REFUSED = (
    CollectorAnswer(CollectorVerdict.TAKEN),
    CollectorAnswer(CollectorVerdict.AWAY, "HTTP 503"),
    CollectorAnswer(CollectorVerdict.REFUSED, "HTTP 400"),
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)


@pytest.fixture(scope="module")
def call() -> EndedCall:
    world = World(M0)
    world.submit("r", 100)
    world.accept(M0)
    world.tokens(M0, 0, 10, finish=FinishReason.LENGTH)
    return call_of(timeline_of(world))


class Sink:
    """Answers in turn, then always with the last. It waits while ``gate`` is shut."""

    def __init__(self, *answers: CollectorAnswer) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.came = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def send(self, body: bytes, timeout_s: float | None = None) -> CollectorAnswer:
        with self.came:
            self.bodies.append(body)
            self.came.notify_all()
        self.gate.wait(20.0)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wait(self, num_bodies: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.bodies) >= num_bodies, 20.0), "nothing was sent"


class Batch:
    """Names of spans stand for their bytes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, trace_id: int, spans: list[Span], wall_s: float) -> None:
        self.spans += spans

    def encode(self) -> bytes:
        return " ".join(span.name for span in self.spans).encode()


def exporting(sink: Sink, make_batch: Any = Batch, **more: Any) -> TraceExporter:
    settings = {"max_per_s": 100_000, "flush_s": 0.001} | more
    return TraceExporter(sink, make_batch, SystemClock(), lambda: 0.0, **settings)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as entries:
        yield entries


def test_all_that_was_taken_is_sent_before_the_end(call: EndedCall):
    sink = Sink(TAKEN)
    with closing(exporting(sink, flush_s=60.0)) as exporter:
        for _ in range(3):
            exporter.take(call, KeptFor.LATE)
        assert not sink.bodies
    assert [body.count(b"decode") for body in sink.bodies] == [3]
    assert (exporter.num_exported, sum(exporter.num_dropped.values())) == (12, 0)


def test_no_more_than_so_many_calls_go_at_a_time(call: EndedCall):
    sink = Sink(TAKEN)
    with closing(exporting(sink, flush_s=60.0, max_per_s=1)) as exporter:
        exporter._max_calls = 2
        for _ in range(5):
            exporter.take(call, KeptFor.LATE)
    assert [body.count(b"decode") for body in sink.bodies] == [2, 2, 1]


def test_what_the_collector_had_no_time_for_is_sent_again(call: EndedCall, logged: list[Any]):
    sink = Sink(AWAY, AWAY, TAKEN)
    with closing(exporting(sink)) as exporter:
        exporter.take(call, KeptFor.LATE)
        sink.wait(3)
    assert (len(set(sink.bodies)), exporter.num_exported) == (1, 4)
    assert [entry["event"] for entry in logged] == [
        "the collector does not take traces", "the collector takes traces again",
    ]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason", "num_tries"), [(AWAY, "away", module.MAX_TRIES), (REFUSED, "refused", 1)])
def test_what_is_not_taken_is_dropped_and_counted(
    call: EndedCall, answer: CollectorAnswer, reason: str, num_tries: int
):
    sink = Sink(answer)
    with capture_logs(), closing(exporting(sink)) as exporter:
        exporter.take(call, KeptFor.LATE)
        sink.wait(num_tries)
    assert (len(sink.bodies), exporter.num_exported) == (num_tries, 0)
    assert exporter.num_dropped == {"full": 0, "away": 0, "refused": 0, "broken": 0} | {reason: 1}


def test_a_slow_collector_fills_the_queue_and_delays_nobody(call: EndedCall, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_PENDING", 4)
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    sink = Sink(TAKEN)
    sink.gate.clear()
    exporter = exporting(sink)
    exporter.take(call, KeptFor.LATE)
    sink.wait(1)
    for _ in range(10):
        exporter.take(call, KeptFor.LATE)
    assert exporter.num_dropped["full"] == 6
    with capture_logs() as entries:
        exporter.close()
    assert [(entry["event"], entry["num_lost"]) for entry in entries] == [("traces were not exported in time", 5)]
    sink.gate.set()
    exporter._thread.join()


def test_a_trace_that_cannot_be_made_harms_no_other(call: EndedCall):
    class Broken(Batch):
        def add(self, trace_id: int, spans: list[Span], wall_s: float) -> None:
            if trace_id == 1:
                raise ValueError("no")
            super().add(trace_id, spans, wall_s)

    broken = EndedCall(1, 2, None, call.facts, call.choices, False)
    sink = Sink(TAKEN)
    with capture_logs() as entries, closing(exporting(sink, Broken, flush_s=60.0)) as exporter:
        exporter.take(broken, KeptFor.LATE)
        exporter.take(call, KeptFor.LATE)
    assert (exporter.num_dropped["broken"], exporter.num_exported) == (1, 4)
    assert [entry["event"] for entry in entries] == ["a trace could not be made"]
