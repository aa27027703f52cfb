"""The gateway's two HTTP applications: one for clients, one for those who operate it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from mesh.clock import Clock
from router.api.adapters import AdapterRoutes, AdapterScope
from router.api.background import Background
from router.api.batches.batches import BatchRoutes
from router.api.batches.files import FileRoutes
from router.api.costs import CostRoutes, LearntRow
from router.api.feed import FeedRoutes
from router.api.forward.routes import ForwardParts, ForwardRoutes, Tokenize, no_tokens
from router.api.http.admission import BodyAdmission
from router.api.http.browsers import BrowserRules, CrossOrigin
from router.api.http.callers import CallerCheck, Callers
from router.api.http.fast_path import FastRoute, FastRoutes, Handler
from router.api.http.outer_layer import OuterLayer, install_error_handlers
from router.api.messages.routes import MessageRoutes
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.body_reader import BodyReader
from router.api.openai.chat.chat_calls import ChatCalls
from router.api.openai.generate import GenerateRoutes
from router.api.openai.input.intake import OrderIntake
from router.api.openai.input.prompts import PromptReader
from router.api.openai.models import Models
from router.api.openai.openapi import describe_answers
from router.api.openai.pooled.reading import TextReader
from router.api.openai.pooled.routes import PooledRoutes
from router.api.openai.tokens import TokenRoutes
from router.api.operations import HealthRoutes, MetricRoutes, ModelRoutes
from router.api.orders import OrderRoutes, OrderScope
from router.api.request_stories import RequestRoutes
from router.api.responses.routes import ResponseRoutes
from router.api.responses.stored import StoredResponses, nothing_stored
from router.api.targets import Target, TargetRoutes
from router.batches.parts import BatchParts
from router.feed.broadcast import FeedBroadcast
from router.generation import RequestRouter
from router.history.timelines import Timelines
from router.images.reader import ImageReader
from router.images.sources import DEFAULT_LIMITS, ImageLimits
from router.servers.forwarded_call import ForwardedCalls
from router.traces.tracer import Tracer
from router.ui.chat import ChatRoutes
from router.ui.routes import PageRoutes
from router.ui.what_if import PlayedTopology
from router.ui.what_if_routes import WhatIfRoutes
from router.ui.what_if_run import Simulations
from router.view.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """What the apps are given. ``callers`` of the public one, ``operators`` of the other, and what browsers may do."""

    gateway: str
    router: RequestRouter
    models: Models
    view: Callable[[], ClusterView]
    timelines: Timelines
    metrics: GatewayMetrics
    clock: Clock
    wall_clock: Callable[[], float]
    max_body_bytes: int
    callers: Callers
    operators: Callers
    rules: BrowserRules
    operator_rules: BrowserRules
    registry: CollectorRegistry
    broadcast: FeedBroadcast
    has_page: bool
    has_chat: bool = False  # whether the page may hand requests to the public application
    played: PlayedTopology | None = None  # that simulations start from; None: there are none
    simulations: Simulations = field(default_factory=Simulations)
    targets: Callable[[], list[Target]] = list  # whom Prometheus is to scrape
    costs: Callable[[], list[LearntRow]] = list  # of engines, as they have learnt
    tracer: Tracer | None = None  # None: no traces
    orders: OrderScope | None = None  # None: nobody takes any
    adapters: AdapterScope | None = None  # None: none are added while it runs
    calls: ForwardedCalls = field(default_factory=ForwardedCalls)  # to servers of others
    tokenize: Tokenize = no_tokens  # by a server
    batches: BatchParts | None = None  # None: there are none
    images: ImageLimits = DEFAULT_LIMITS
    responses: StoredResponses = field(default_factory=nothing_stored)


@dataclass(frozen=True, slots=True)
class Apps:
    """The two applications of a gateway. ``public``: what clients reach. ``admin``: metrics, what became of requests,
    and what the API is.
    """

    public: ASGIApp
    admin: ASGIApp


def create_apps(config: ApiConfig) -> Apps:
    public = _framework(config.callers, config.rules)
    admin = _framework(config.operators, config.operator_rules)
    intake = OrderIntake(config.gateway, config.router, config.metrics, config.clock)
    admission = BodyAdmission.of_bodies(config.max_body_bytes)
    background = Background()
    bodies = BodyReader(admission, config.max_body_bytes, background)
    prompts = PromptReader(background, ImageReader(background, config.images))
    chats = ChatCalls(intake, config.models, config.clock, config.wall_clock, prompts)
    generate = GenerateRoutes(intake, chats, bodies, config.models, prompts, config.clock, config.wall_clock)
    generate.install(public)
    tokens = TokenRoutes(bodies, config.models, prompts)
    tokens.install(public)
    pooled = _pooled(config, bodies, background)
    pooled.install(public)
    messages = MessageRoutes(chats, bodies, config.clock)
    messages.install(public)
    responses = ResponseRoutes(chats, bodies, config.responses, config.clock, config.wall_clock)
    responses.install(public)
    handlers = {**generate.handlers, **pooled.handlers, **messages.handlers, **responses.handlers}
    if config.models.has_forwarded:
        forward = _forward(config, admission, background, {**handlers, **tokens.handlers})
        forward.install(public)
        handlers |= forward.handlers
    if config.batches is not None:
        config.batches.answerer.serve(handlers)
        _install_batches(public, config, config.batches, admission, background)
    ModelRoutes(config.models, int(config.wall_clock())).install(public)
    health = HealthRoutes(config.router, config.view)
    for app in (public, admin):
        health.install(app)
    MetricRoutes(config.registry).install(admin)
    TargetRoutes(config.targets).install(admin)
    CostRoutes(config.costs).install(admin)
    FeedRoutes(config.broadcast).install(admin)
    RequestRoutes(config.gateway, config.timelines, config.clock).install(admin)
    if config.orders is not None:
        OrderRoutes(config.orders, admission, background).install(admin)
    if config.adapters is not None:
        adapters = AdapterRoutes(config.adapters, admission, background)
        for app, takes in ((public, config.adapters.on_public), (admin, config.adapters.on_admin)):
            if takes:
                adapters.install(app)
    for app in (public, admin):
        describe_answers(app)
    _describe(admin, public)
    check = CallerCheck(config.rules, config.callers)
    fast = FastRoutes(public, {path: FastRoute(handle, check, config.tracer) for path, handle in handlers.items()})
    clients = CrossOrigin(fast, config.rules)
    if config.has_page:
        _install_page(admin, clients, config)
    return Apps(clients, admin)


def _pooled(config: ApiConfig, bodies: BodyReader, background: Background) -> PooledRoutes:
    return PooledRoutes(
        config.gateway,
        config.router,
        config.models,
        config.metrics,
        bodies,
        TextReader(background),
        config.clock,
        config.wall_clock,
    )


def _forward(
    config: ApiConfig, admission: BodyAdmission, background: Background, own: Mapping[str, Handler]
) -> ForwardRoutes:
    parts = ForwardParts(
        config.gateway,
        config.router,
        config.calls,
        config.models,
        config.metrics,
        admission,
        background,
        config.clock,
        config.max_body_bytes,
        config.tokenize,
    )
    return ForwardRoutes(parts, own)


def _install_batches(
    public: FastAPI, config: ApiConfig, batches: BatchParts, admission: BodyAdmission, background: Background
) -> None:
    stored, runner = batches.stored, batches.runner
    FileRoutes(stored, config.wall_clock, batches.max_file_bytes).install(public)
    BatchRoutes(stored, batches.answerer, runner.wake, config.wall_clock, admission, background).install(public)


def _install_page(admin: FastAPI, clients: ASGIApp, config: ApiConfig) -> None:
    """The page, and what only the page asks."""
    PageRoutes().install(admin)
    if config.has_chat:
        ChatRoutes(clients).install(admin)
    if config.played is not None:
        WhatIfRoutes(config.played, config.simulations, config.timelines, config.clock).install(admin)


def _framework(callers: Callers, rules: BrowserRules) -> FastAPI:
    app = FastAPI(title="MeshServe", openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(OuterLayer, callers=CallerCheck(rules, callers))
    install_error_handlers(app)
    return app


def _describe(admin: FastAPI, public: FastAPI) -> None:
    """Let the admin address say what both addresses offer."""

    async def document() -> Response:
        return JSONResponse(described(public, admin))

    admin.add_api_route("/openapi.json", document, methods=["GET"], include_in_schema=False)


def described(public: FastAPI, admin: FastAPI) -> dict[str, Any]:
    """One OpenAPI document of both."""
    document = public.openapi()
    return document | {"paths": admin.openapi()["paths"] | document["paths"]}
