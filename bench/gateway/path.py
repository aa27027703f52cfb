"""What a gateway's own code takes for a streamed token and for a request: microseconds, without any system call.

    python -m bench.gateway.path [--rounds N] [--model REFERENCE]
    python -m bench.gateway.path --traces [--rounds 2000]

A gateway's router, API and HTTP protocol in this process, from an engine's messages as bytes to HTTP as bytes. There
are no sockets, so the kernel's and ZeroMQ's part is not in it, and little of what else the machine does: the round with
the least CPU time counts. `bench.peers.routers` has the whole, and the noise.

With ``--traces``, what traces add to a request's CPU time, where a tenth of the calls is kept: two gateways, with and
without, answer in short rounds by turns, whose order changes each time. The median of the differences counts, and the
spread is told with it: what else the machine does comes to both sides of a difference, or is an outlier. To make spans
of a call that is kept, and to encode them, is timed apart: a gateway's thread does it.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, cast

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry
from uvicorn.server import ServerState

from bench.gateway.scripted_engine import told
from bench.gateway.servers import write_topology
from bench.harness.arguments import script_parser
from bench.live.servers import MODEL
from engines.models.store import prepared_dir
from mesh.access.key_file import change_keys
from mesh.access.keys import UNLIMITED, KeyLimits, make_key
from mesh.clock import SystemClock
from mesh.process.garbage import spare_what_is_loaded
from mesh.process.logs import configure
from mesh.sockets.sockets import Sockets
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from mesh.wire.messages import Codec, GatewayMessage, Message, encode
from mesh.wire.requests import Accepted, Delta, Epoch, FinishReason, RequestSpec, StepTokens, Submit
from router.api.access.keyed import KeyedCallers
from router.api.access.keyring import Keyring
from router.api.app import ApiConfig, create_apps
from router.api.http.browsers import BrowserRules
from router.api.http.callers import Callers, ClientPeers, OpenCallers
from router.api.http.connections import Connections
from router.api.http.protocol import BoundedProtocol
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.models import Models, ServedModel
from router.feed.broadcast import FeedBroadcast
from router.feed.feed import FeedSources
from router.gateway import Router
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timeline import RequestTimeline
from router.history.timelines import TimelineReaders, Timelines
from router.policies.in_force import PolicyInForce
from router.traces.call_trace import EndedCall
from router.traces.sampling import KeptFor
from router.traces.spans import spans_of
from router.traces.tracer import Tracer

PROMPT = "The quick brown fox jumps over the lazy dog, writes it down, and reads it aloud to everybody who is near."
END = b"data: [DONE]\n\n\r\n0\r\n\r\n"
ENGINE = Sender("engine", 1)
LIMITS = KeyLimits(requests_per_minute=10**9, tokens_per_minute=10**12, in_flight=10**6, max_priority=1)
NUM_STREAMS = 32  # side by side
TURNS = 4  # of the event loop, in which tokens have left
MAX_TURNS = 1000
SHORT = 3  # tokens of an answer, where requests count and not tokens
SHARE = 0.1  # of calls whose traces are kept


class Wire:
    """Stands for `Sockets`: what is sent is encoded and kept, what is received is decoded from bytes."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self._codec: Codec[GatewayMessage] = Codec(GatewayMessage)

    def send(self, to: str, message: Message) -> bool:
        encode(message)
        self.sent.append(message)
        return True

    def decode(self, body: bytes) -> GatewayMessage:
        return self._codec.decode(body)


class Connection(asyncio.Transport):
    """A client that reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.received = bytearray()

    def write(self, data: Any) -> None:
        self.received += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Nothing comes unasked."""

    def resume_reading(self) -> None:
        """Likewise."""


class Gateway:
    """One without sockets, which ``topology`` has as its first one."""

    def __init__(
        self, topology: Topology, callers: Callers, *, has_traces: bool = False, models: Models | None = None
    ) -> None:
        """``models``: None: those of the mesh's own engines."""
        self.wire, clock, registry, tallies = Wire(), SystemClock(), CollectorRegistry(), Tallies()
        spec = topology.gateways[0]
        policy = PolicyInForce(topology.policy, Random(0), clock.now())
        metrics = GatewayMetrics(registry)

        def ended(timeline: RequestTimeline, request: RequestSpec) -> None:
            record = record_of(timeline)
            tallies.ended(record, request.service)
            metrics.ended(record, timeline.reason)

        self.kept: list[EndedCall] = []
        tracer = Tracer(SHARE, Random(0), lambda call, _: self.kept.append(call)) if has_traces else None
        readers = (ended,) if tracer is None else (ended, tracer.ended)
        timelines = Timelines(TimelineReaders((tallies.arrived,), (metrics.delivered,), readers))
        sockets = cast(Sockets[GatewayMessage], self.wire)
        self.router = Router(topology, spec.id, sockets, clock, policy, timelines, tallies)
        own = models or Models(ServedModel.load(service, prepared_dir(service.model)) for service in topology.services)
        sources = FeedSources(topology, spec.id, timelines, self.router.report, lambda: None, lambda at: at)
        app = create_apps(
            ApiConfig(
                gateway=spec.id,
                router=self.router,
                models=own,
                view=self.router.view,
                timelines=timelines,
                metrics=metrics,
                clock=clock,
                wall_clock=time.time,
                max_body_bytes=spec.max_body_bytes,
                callers=callers,
                operators=OpenCallers(ClientPeers()),
                rules=BrowserRules.of("127.0.0.1", (), ()),
                operator_rules=BrowserRules(None),
                registry=registry,
                broadcast=FeedBroadcast(sources, clock),
                has_page=False,
                tracer=tracer,
                calls=self.router.calls,
            )
        ).public
        off: dict[str, Any] = {"lifespan": "off", "log_config": None, "access_log": False, "proxy_headers": False}
        self._config = uvicorn.Config(app, http="httptools", ws="none", **off)
        self._config.load()
        self._state = ServerState()
        self._clock = clock
        self._seq = 0

    def connect(self) -> tuple[BoundedProtocol, Connection]:
        connection = Connection()
        protocol = BoundedProtocol(
            self._config,
            self._state,
            {},
            asyncio.get_running_loop(),
            connections=Connections(1024, 1024),
            peers=ClientPeers(),
        )
        protocol.connection_made(connection)
        return protocol, connection

    def receive(self, body: bytes) -> None:
        """A message of the engine."""
        self.router.take(ENGINE, self.wire.decode(body))

    def observe(self) -> None:
        """The engine is there, and idle."""
        self._seq += 1
        self.router.hear(ENGINE, told(self._seq, [MODEL], 5e-3))


def request(num_tokens: int, key: str | None) -> bytes:
    message = {"role": "user", "content": " ".join([PROMPT] * 3)}
    fields = {"stream": True, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    body = json.dumps({"model": MODEL, "messages": [message]} | fields).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += "" if key is None else f"authorization: Bearer {key}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def step(specs: Iterable[RequestSpec], offset: int, *, is_last: bool) -> bytes:
    """A token for each."""
    finish = FinishReason.LENGTH if is_last else None
    tokens = (Delta(spec.id, Epoch(0), offset, [spec.prompt[offset % len(spec.prompt)]], finish) for spec in specs)
    return encode(StepTokens(list(tokens)))


async def until(is_done: Callable[[], bool]) -> None:
    """Let the event loop turn, a few times at least."""
    for turn in range(MAX_TURNS):
        await asyncio.sleep(0)
        if turn >= TURNS and is_done():
            return
    raise SystemExit("the gateway did not answer")


class Rounds:
    """Answers of ``num_tokens`` to requests side by side, over connections that stay."""

    def __init__(self, gateway: Gateway, key: str | None) -> None:
        self._key = key
        self._gateway = gateway
        self._connections = [gateway.connect() for _ in range(NUM_STREAMS)]

    async def play(self, num_tokens: int) -> tuple[float, float]:
        """Seconds for a request with its first and last token, and for a token between them."""
        gateway, wire = self._gateway, self._gateway.wire
        gateway.observe()
        wire.sent.clear()
        data = request(num_tokens, self._key)
        start = time.thread_time()
        for protocol, connection in self._connections:
            connection.received.clear()
            protocol.data_received(data)
        await until(lambda: sum(isinstance(message, Submit) for message in wire.sent) == len(self._connections))
        begun_s = time.thread_time() - start
        specs = [message.spec for message in wire.sent if isinstance(message, Submit)]
        accepted = [encode(Accepted(spec.id, Epoch(0), 0)) for spec in specs]
        steps = [step(specs, index, is_last=index == num_tokens - 1) for index in range(num_tokens)]
        seconds = []
        for index, bodies in enumerate(([*accepted, steps[0]], *([body] for body in steps[1:]))):
            start = time.thread_time()
            for body in bodies:
                gateway.receive(body)
            await until(self._are_done if index == num_tokens - 1 else lambda: True)
            seconds.append(time.thread_time() - start)
        count = len(self._connections)
        return (begun_s + seconds[0] + seconds[-1]) / count, statistics.mean(seconds[1:-1]) / count

    def _are_done(self) -> bool:
        return all(connection.received.endswith(END) for _, connection in self._connections)


def export_us(calls: list[EndedCall]) -> float:
    """Microseconds to make and to encode the spans of a call; the calls are taken."""
    from router.traces.otlp import OtlpBatch

    ids, batch, start, num_calls = Random(0), OtlpBatch({}), time.thread_time(), len(calls)
    for call in calls:
        batch.add(call.trace_id, spans_of(call, KeptFor.SHARE, lambda: ids.getrandbits(64) or 1), 0.0)
    batch.encode()
    calls.clear()
    return 1e6 * (time.thread_time() - start) / num_calls


async def measure(topology: Topology, num_rounds: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Microseconds of a token, and of a request with its first and last token, by who may ask; the least of all rounds.
    The ways take turns, so that a slow moment of the machine is not one's alone.
    """
    free, free_text = make_key("anybody", UNLIMITED, time.time())
    key, text = make_key("somebody", LIMITS, time.time())
    change_keys(folder / "keys.json", lambda _: (free, key))
    keyring = Keyring(folder / "keys.json", UNLIMITED)
    keyed = KeyedCallers(ClientPeers(), keyring, lambda: 1, SystemClock(), time.time)
    ways = {
        "open": Rounds(Gateway(topology, OpenCallers(ClientPeers())), None),
        "key": Rounds(Gateway(topology, keyed), free_text),
        "key with limits": Rounds(Gateway(topology, keyed), text),
    }
    for rounds in ways.values():
        await rounds.play(8)
    spare_what_is_loaded()
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(num_rounds):
        for name, rounds in ways.items():
            costs[name].append(await rounds.play(16))
    return {name: (1e6 * min(t for _, t in one), 1e6 * min(r for r, _ in one)) for name, one in costs.items()}


async def measure_traces(topology: Topology, num_rounds: int) -> None:
    """Print what traces add to a request, in the event loop and beside it."""
    plain, traced = (Gateway(topology, OpenCallers(ClientPeers()), has_traces=which) for which in (False, True))
    ways = [Rounds(gateway, None) for gateway in (plain, traced)]
    for rounds in ways:
        await rounds.play(8)
    traced.kept.clear()
    spare_what_is_loaded()
    without, added, exports, num_kept = list[float](), list[float](), list[float](), 0
    for index in range(num_rounds):
        order = (0, 1) if index % 2 else (1, 0)
        took = {which: (await ways[which].play(SHORT))[0] for which in order}
        without.append(1e6 * took[0])
        added.append(1e6 * (took[1] - took[0]))
        num_kept += len(traced.kept)
        if traced.kept:
            exports.append(export_us(traced.kept))
    low, middle, high = statistics.quantiles(added, n=4)
    whole, share = statistics.median(without), num_kept / (num_rounds * NUM_STREAMS)
    error = 1.25 * (high - low) / 1.35 / num_rounds**0.5  # of a median, where differences are about normal
    print(f"a request with {SHORT} tokens, without traces: {whole:.1f} us (median of {num_rounds} rounds)")
    print(f"traces add {middle:.2f} us in the event loop, {middle / whole:.1%} (quartiles {low:.2f} and {high:.2f};")
    print(f"standard error {error:.2f} us), with {share:.1%} of the calls kept")
    if exports:
        beside = statistics.median(exports)
        print(f"spans of a call that is kept: {beside:.0f} us in a thread, {share * beside:.1f} us for each request")


def main() -> None:
    parser = script_parser("bench.gateway.path", __doc__, model=True, rounds=100)
    parser.add_argument("--traces", action="store_true", help="what traces add to a request; needs the extra otel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        topology = load(write_topology(Path(folder), options.model, 8000))
        configure("gateway", topology.log_level, Path(folder) / "log")
        if options.traces:
            uvloop.run(measure_traces(topology, options.rounds))
            return
        costs = uvloop.run(measure(topology, options.rounds, Path(folder)))
    for name, (token_us, request_us) in costs.items():
        print(f"{name}: {token_us:.1f} us a token, {request_us:.0f} us a request with its first and last token")


if __name__ == "__main__":
    main()
