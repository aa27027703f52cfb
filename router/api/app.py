"""The gateway's HTTP application."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from mesh.clock import Clock
from router.api.admission import Admission
from router.api.background import Background
from router.api.callers import Callers
from router.api.edge import Edge, install_error_handlers
from router.api.generate import GenerateRoutes
from router.api.intake import Intake
from router.api.lanes import Lane, Lanes
from router.api.metrics import EngineGauges, GatewayMetrics
from router.api.models import Models
from router.api.openapi import describe_answers
from router.api.operations import OperationRoutes
from router.api.requests import RequestRoutes
from router.api.tokens import TokenRoutes
from router.cluster import ClusterView
from router.decisions import DecisionLog
from router.generation import Frontdoor


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """What the app is given. ``created``: seconds since the epoch, shown as the models' date."""

    gateway: str
    frontdoor: Frontdoor
    models: Models
    view: Callable[[], ClusterView]
    decisions: DecisionLog
    clock: Clock
    wall_clock: Callable[[], float]
    max_body_bytes: int
    callers: Callers
    registry: CollectorRegistry


def create_app(config: ApiConfig) -> ASGIApp:
    app = FastAPI(title="MeshServe", openapi_url="/openapi.json", redoc_url=None)
    app.add_middleware(Edge, callers=config.callers)
    install_error_handlers(app)
    config.registry.register(EngineGauges(config.view))
    intake = Intake(config.gateway, config.frontdoor, GatewayMetrics(config.registry), config.clock)
    admission = Admission()
    background = Background()
    generate = GenerateRoutes(
        intake, config.models, admission, config.clock, config.wall_clock, config.max_body_bytes, background
    )
    generate.install(app)
    TokenRoutes(config.models, admission, config.max_body_bytes, background).install(app)
    created = int(config.wall_clock())
    OperationRoutes(config.frontdoor, config.view, config.models, config.registry, created).install(app)
    RequestRoutes(config.gateway, config.decisions, config.clock).install(app)
    describe_answers(app)
    return Lanes(app, {path: Lane(handle, config.callers) for path, handle in generate.handlers.items()})
