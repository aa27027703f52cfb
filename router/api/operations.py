"""Answers operators and load balancers: models, health, metrics."""

import asyncio
from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry

from mesh.metrics.exposition import written
from mesh.wire.control import ProcessState
from router.api.errors import ApiError
from router.api.http.callers import caller_of
from router.api.openai.models import Models, entry
from router.generation import Draining, RequestRouter
from router.view.cluster_view import ClusterView


class ModelRoutes:
    """Routes that list the services. ``created``: seconds since the epoch, shown as the models' date."""

    def __init__(self, models: Models, created: int) -> None:
        self._models = models
        self._created = created

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/v1/models", self.list_models, methods=["GET"])
        app.add_api_route("/v1/models/{model:path}", self.show_model, methods=["GET"])

    async def list_models(self, request: Request) -> Response:
        return _json({"object": "list", "data": self._models.entries(self._created, caller_of(request.scope))})

    async def show_model(self, model: str, request: Request) -> Response:
        return _json(entry(model, self._models.find_any(model, caller_of(request.scope)), self._created))


class HealthRoutes:
    def __init__(self, router: RequestRouter, view: Callable[[], ClusterView]) -> None:
        self._router = router
        self._view = view

    def install(self, app: FastAPI) -> None:
        for path, probe in (("/health", self.health), ("/live", self.live)):
            app.add_api_route(path, probe, methods=["GET"])
            app.add_api_route(path, probe, methods=["HEAD"], include_in_schema=False)

    async def live(self) -> Response:
        """200 as long as the process answers."""
        return _json({"status": "live"})

    async def health(self) -> Response:
        """200 when new requests are welcome, else 503 and why."""
        if self._router.state is ProcessState.DRAINING:
            raise Draining
        if self._router.state is ProcessState.STARTING:
            raise ApiError(503, "the gateway is starting", code="starting")
        ready = [engine.id for engine in self._view().engines.values() if engine.state is ProcessState.READY]
        if not ready:
            raise ApiError(503, "no engine is ready", code="no_engines", headers={"retry-after": "1"})
        return _json({"status": "ready", "engines": ready})


class MetricRoutes:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/metrics", self.metrics, methods=["GET"])

    async def metrics(self, request: Request) -> Response:
        """Numbers are read at one moment. Their text takes ten times as long, and is made beside the event loop."""
        read = list(self._registry.collect())
        text, kind = await asyncio.to_thread(written, read, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
