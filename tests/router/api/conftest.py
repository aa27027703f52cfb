"""A tiny tokenizer, a router that plays scripts, and the app in front of them."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp
from structlog.testing import capture_logs
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from mesh.clock import SystemClock
from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.control import ProcessState, Role
from mesh.wire.requests import FinishReason, RequestSpec, TokenLogprobs
from mesh.wire.status import EngineStatus
from router.api.app import ApiConfig, Apps, create_apps
from router.api.http.browsers import BrowserRules
from router.api.http.callers import ClientPeers, OpenCallers
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.models import Models, ServedModel
from router.api.responses.stored import StoredResponses, nothing_stored
from router.feed.broadcast import FeedBroadcast
from router.generation import Route, RouterError, TokenBatch
from router.history.records import Outcome
from router.history.summary import record_of
from router.history.timeline import RequestTimeline, Seen
from router.history.timelines import TimelineReaders, Timelines
from router.history.trace import RequestTrace
from router.policies.policy import Dispatch
from router.traces.tracer import Tracer
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView, RequestView, engine_view
from tests.router.feed_sources import sources_of

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{% if message['content'] == 'go away' %}{{ raise_exception('not so') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = ["Hello world, this is a tiny tokenizer.", "The quick brown fox jumps over the lazy dog. STOP here."] * 20


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = RawTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})
    )
    config = {
        "model_type": "llama", "vocab_size": tokenizer.get_vocab_size(), "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 256, "eos_token_id": 2,
        "bos_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def model(model_folder: Path) -> ServedModel:
    limits = {"max_output_tokens": 200, "temperature": 0.7, "top_p": 0.95}
    spec = ServiceSpec("tiny", str(model_folder), Slo(1.0, 0.1), aliases=("tiny-alias",), **limits)
    return ServedModel.load(spec, model_folder)


DISPATCH = Dispatch("prefill-0", "decode-0", "disaggregate", prefill_s=0.01, predicted_ttft_s=0.0125)
VIEW = RequestView("r", "tiny", 1, 0.0, 1.0, 0.1, 0)

Step = TokenBatch | Exception | asyncio.Event
Script = Callable[[RequestSpec], Sequence[Step]]


@dataclass
class ScriptedGeneration:
    """Plays batches, raises errors, waits for events."""

    steps: Sequence[Step]
    timeline: RequestTimeline
    timelines: Timelines
    has_more: bool = False
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _here: deque[TokenBatch] = field(default_factory=deque)
    _error: Exception | None = None
    _tell: Callable[[], None] | None = None
    _playing: asyncio.Task[None] | None = None

    def listen(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        if self._playing is None:
            self._playing = asyncio.get_running_loop().create_task(self._play())

    def take(self) -> TokenBatch | None:
        if not self._here and self._error is not None:
            raise self._error
        return self._here.popleft() if self._here else None

    async def _play(self) -> None:
        for step in self.steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            await asyncio.sleep(0)
            if isinstance(step, Exception):
                self._error = step
            else:
                self._deliver(step)
                self._here.append(step)
            if self._tell is None:
                return
            self._tell()

    def _deliver(self, batch: TokenBatch) -> None:
        seen = Seen(self.timeline.arrived_at + 0.001, VIEW, ClusterView({}), ())
        if self.route is None:
            self.timelines.decided(self.timeline, 0, "scripted", DISPATCH, seen)
        self.timelines.delivered(self.timeline, batch, DISPATCH.decode_engine, SystemClock().now())
        if batch.finish is not None:
            self._leave(Outcome.FINISHED, str(batch.finish))

    @property
    def route(self) -> Route | None:
        return self.timeline.route

    @property
    def ttft_s(self) -> float | None:
        return self.timeline.ttft_s

    def cancel(self) -> None:
        self.cancelled.set()
        self._stop()
        self._leave(Outcome.CANCELLED, "no longer wanted")

    def finish(self) -> None:
        self.finished.set()
        self._stop()
        self._leave(Outcome.FINISHED, "stop")

    def _stop(self) -> None:
        self._tell = None
        if self._playing is not None:
            self._playing.cancel()

    def _leave(self, outcome: Outcome, reason: str) -> None:
        if self.timeline.ended is None:
            self.timelines.left(self.timeline, outcome, reason, SystemClock().now())


@dataclass
class ScriptedRouter:
    """Its timelines are its own: ``metrics`` read them."""

    script: Script
    metrics: GatewayMetrics = field(default_factory=lambda: GatewayMetrics(CollectorRegistry()))
    state: ProcessState = ProcessState.READY
    refusal: RouterError | None = None
    tracer: Tracer | None = None
    specs: list[RequestSpec] = field(default_factory=list)
    generations: list[ScriptedGeneration] = field(default_factory=list)
    submitted: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        traced = () if self.tracer is None else (self.tracer.ended,)
        self.timelines = Timelines(TimelineReaders(delivered=(self.metrics.delivered,), ended=(self._ended, *traced)))

    def _ended(self, timeline: RequestTimeline, _: RequestSpec) -> None:
        self.metrics.ended(record_of(timeline), timeline.reason)

    def submit(self, spec: RequestSpec, tenant: str = "", trace: RequestTrace | None = None) -> ScriptedGeneration:
        timeline = self.timelines.arrived(spec, SystemClock().now(), tenant, trace)
        if self.refusal:
            self.timelines.failed(timeline, self.refusal, SystemClock().now())
            raise self.refusal
        self.specs.append(spec)
        self.generations.append(ScriptedGeneration(self.script(spec), timeline, self.timelines))
        self.submitted.set()
        return self.generations[-1]


def batch(*tokens: int, finish: FinishReason | None = None, cached: int = 0, prompt: object = None,
          logprobs: Sequence[TokenLogprobs] | None = None) -> TokenBatch:  # fmt: skip
    return TokenBatch(tokens, finish, cached, tuple(logprobs) if logprobs else None, prompt)  # type: ignore[arg-type]


def one_by_one(tokens: Sequence[int], finish: FinishReason = FinishReason.LENGTH, cached: int = 0) -> list[TokenBatch]:
    """A batch a token."""
    last = len(tokens) - 1
    return [batch(token, finish=finish if i == last else None, cached=cached) for i, token in enumerate(tokens)]


def engine(state: ProcessState = ProcessState.READY) -> EngineView:
    status = EngineStatus(
        seq=1, state=state, role=Role.MULTIPLEX, host="local", pid=1, services=[], num_running=3, num_waiting=2,
        num_tokens=0, prefill_remaining_s=0.0, prefill_waiting_s=0.0, decode_step_s=0.0, min_slack_s=None,
    )  # fmt: skip
    return engine_view("decode-0", status, 0.0, ())


@dataclass
class Gateway:
    """The app, what is behind it, and a client in front of it."""

    router: ScriptedRouter
    model: ServedModel
    engines: dict[str, EngineView]
    timelines: Timelines
    app: ASGIApp
    client: httpx.AsyncClient
    admin: httpx.AsyncClient

    def says(self, text: str, finish: FinishReason = FinishReason.LENGTH, cached: int = 0) -> list[int]:
        """From now on every answer is ``text``, a token at a time. Returns its tokens."""
        tokens = self.model.tokenizer.encode(text, add_special_tokens=False)
        self.router.script = lambda spec: one_by_one(tokens, finish, cached)
        return tokens

    async def chat(self, **body: object) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"model": "tiny", "messages": HELLO} | body)

    async def complete(self, **body: object) -> httpx.Response:
        return await self.client.post("/v1/completions", json={"model": "tiny", "prompt": "Hello world"} | body)


HELLO = [{"role": "user", "content": "Hello world"}]


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """What is logged during a test."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
async def gateway(model: ServedModel) -> AsyncIterator[Gateway]:
    async with gateway_of(model, max_body_bytes=20_000) as made:
        yield made


@pytest.fixture
async def roomy_gateway(model: ServedModel) -> AsyncIterator[Gateway]:
    """Takes bodies as large as a real one does."""
    async with gateway_of(model, max_body_bytes=5 << 20) as made:
        yield made


@asynccontextmanager
async def gateway_of(
    model: ServedModel, max_body_bytes: int, responses: StoredResponses | None = None
) -> AsyncIterator[Gateway]:
    router = ScriptedRouter(lambda spec: one_by_one([10, 11]))
    engines, timelines = {"decode-0": engine()}, Timelines()
    apps = apis_of(model, router, max_body_bytes, engines, timelines, responses=responses or nothing_stored())
    async with client_of(apps.public) as client, client_of(apps.admin) as admin:
        yield Gateway(router, model, engines, timelines, apps.public, client, admin)


def apis_of(
    model: ServedModel,
    router: ScriptedRouter,
    max_body_bytes: int,
    engines: dict[str, EngineView] | None = None,
    timelines: Timelines | None = None,
    **further: Any,
) -> Apps:
    seen = {"decode-0": engine()} if engines is None else engines
    config = ApiConfig(
        gateway="gateway-0",
        router=router,
        models=Models([model]),
        view=lambda: ClusterView(seen),
        timelines=Timelines() if timelines is None else timelines,
        metrics=router.metrics,
        clock=SystemClock(),
        wall_clock=lambda: 1_700_000_000.0,
        max_body_bytes=max_body_bytes,
        callers=OpenCallers(ClientPeers()),
        operators=OpenCallers(ClientPeers()),
        rules=BrowserRules(None),
        operator_rules=BrowserRules(None),
        registry=router.metrics.registry,
        tracer=router.tracer,
        broadcast=FeedBroadcast(sources_of(timelines), SystemClock()),
        has_page=True,
        has_chat=True,
    )
    return create_apps(replace(config, **further))


def both(apps: Apps) -> ASGIApp:
    """What operators ask goes to their address, all else to that of clients."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_operators = scope["path"].startswith(("/metrics", "/mesh/", "/openapi.json", "/ui/"))
        await (apps.admin if is_operators else apps.public)(scope, receive, send)

    return app


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    headers = {"content-type": "application/json"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway", headers=headers)


@pytest.fixture
def events() -> Callable[[httpx.Response], list[dict[str, object]]]:
    return events_of


@pytest.fixture
def script() -> SimpleNamespace:
    """The words of a script."""
    return SimpleNamespace(batch=batch, one_by_one=one_by_one, engine=engine)


def events_of(response: httpx.Response) -> list[dict[str, object]]:
    """The JSON events of a stream; checks its frame."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [part for part in response.text.split("\n\n") if part]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
