"""The routes /v1/embeddings, /v1/rerank and /v1/score."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from structlog.typing import FilteringBoundLogger

from engines.models.text.text_encoder import EncodedText
from mesh.clock import Clock
from mesh.topology.schema import Task
from router.api.access.promises import promise_of_vectors
from router.api.errors import bad_parameter
from router.api.http.callers import Caller, caller_of
from router.api.http.disconnect import disconnected
from router.api.http.fast_path import Handler
from router.api.http.headers import Wishes, headers_of, route_headers
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.body_reader import BodyReader
from router.api.openai.input.ids import CallId
from router.api.openai.input.schema import body_schema
from router.api.openai.models import Models
from router.api.openai.pooled.bodies import EmbeddingBody, PooledBody, RerankBody, ScoreBody
from router.api.openai.pooled.call import PooledCall, PooledOrder
from router.api.openai.pooled.checks import check_dimensions, check_task_of
from router.api.openai.pooled.model import PooledModel
from router.api.openai.pooled.reading import Pair, TextReader
from router.generation import RequestRouter

EMBEDDINGS: Final = "/v1/embeddings"
RERANK: Final = "/v1/rerank"
SCORE: Final = "/v1/score"
BODIES: Final[Mapping[str, type[PooledBody]]] = {EMBEDDINGS: EmbeddingBody, RERANK: RerankBody, SCORE: ScoreBody}
LARGE_ANSWER: Final = 16_384  # numbers; more are written beside the event loop


class PooledRoutes:
    """What they give is bounded by the texts of a body and the model's dimensions."""

    def __init__(
        self,
        gateway: str,
        router: RequestRouter,
        models: Models,
        metrics: GatewayMetrics,
        bodies: BodyReader,
        texts: TextReader,
        clock: Clock,
        wall_clock: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._router = router
        self._models = models
        self._metrics = metrics
        self._bodies = bodies
        self._clock = clock
        self._wall_clock = wall_clock
        self._texts = texts
        self._log: FilteringBoundLogger = structlog.get_logger().bind()

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by path; all take POST."""
        return {EMBEDDINGS: self.embed, RERANK: self.rerank, SCORE: self.score}

    def install(self, app: FastAPI) -> None:
        for path, handle in self.handlers.items():
            app.add_api_route(path, handle, methods=["POST"], openapi_extra=body_schema(BODIES[path]))

    async def embed(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, EmbeddingBody, entry)
            _check_embedding(body)
            model = self._models.find_pooled(body.model, caller)
            check_task_of(EMBEDDINGS, model)
            check_dimensions(body.dimensions, model)
            texts = await self._texts.inputs(body, model, caller.tenant)
            order = self._order("embeddings", request, body, model, texts)
        call = await self._run(order, request)
        from router.api.openai.pooled.answers import embeddings

        return await self._answer(call, lambda: embeddings(call, body))

    async def rerank(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, RerankBody, entry)
            if body.max_tokens_per_doc is not None:
                raise bad_parameter("max_tokens_per_doc", "is not supported; use truncate_prompt_tokens")
            model = self._models.find_pooled(body.model, caller)
            documents = [one if isinstance(one, str) else one.text for one in body.documents]
            texts = await self._compared(("query", [body.query]), ("documents", documents), body, model, caller)
            order = self._order("rerank", request, body, model, texts)
        call = await self._run(order, request)
        from router.api.openai.pooled.answers import reranked

        return await self._answer(call, lambda: reranked(call, body, documents))

    async def score(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, ScoreBody, entry)
            first, second = _listed(body.text_1), _listed(body.text_2)
            if len(first) not in (1, len(second)):
                problem = f"must be one text, or as many as text_2 has: {len(second)}, not {len(first)}"
                raise bad_parameter("text_1", problem)
            model = self._models.find_pooled(body.model, caller)
            texts = await self._compared(("text_1", first), ("text_2", second), body, model, caller)
            order = self._order("score", request, body, model, texts)
        call, created = await self._run(order, request), int(self._wall_clock())
        from router.api.openai.pooled.answers import scored

        return await self._answer(call, lambda: scored(call, len(first), created))

    async def _compared(
        self,
        first: tuple[str, Sequence[str]],
        second: tuple[str, Sequence[str]],
        body: PooledBody,
        model: PooledModel,
        caller: Caller,
    ) -> list[EncodedText]:
        """Prompts for texts that are compared: pairs, or, of a model that makes vectors, the first and the second."""
        for param, texts in (first, second):
            if not all(texts):
                raise bad_parameter(param, "must not be empty")
        if model.task is Task.SCORE:
            pairs: list[Pair] = list(zip(list(first[1]) * (len(second[1]) // len(first[1])), second[1], strict=True))
            return await self._texts.pairs(second[0], pairs, body, model, caller.tenant)
        ones = await self._texts.texts(*first, body, model, caller.tenant)
        return ones + await self._texts.texts(*second, body, model, caller.tenant)

    def _order(
        self, operation: str, request: Request, body: PooledBody, model: PooledModel, texts: Sequence[EncodedText]
    ) -> PooledOrder:
        scope, caller = request.scope, caller_of(request.scope)
        return PooledOrder(
            id=CallId.draw(scope["state"]["request_id"]),
            gateway=self._gateway,
            operation=operation,
            model=model,
            name=body.model or model.service,
            promise=promise_of_vectors(Wishes.of(headers_of(scope)), model, caller),
            caller=caller,
            texts=texts,
            trace=scope["state"].get("trace"),
        )

    async def _run(self, order: PooledOrder, request: Request) -> PooledCall:
        metrics = self._metrics.of_call(order.model.service, order.promise.priority)
        call = PooledCall(order, self._router, metrics, self._clock, self._log)
        await call.run(disconnected(request.receive))
        return call

    async def _answer(self, call: PooledCall, make: Callable[[], dict[str, Any]]) -> Response:
        """Write what was asked for, beside the event loop if it is long."""

        def write() -> bytes:
            return msgspec.json.encode(make())

        is_large = len(call.vectors) * call.order.model.num_dimensions > LARGE_ANSWER
        body = await asyncio.to_thread(write) if is_large else write()
        headers = route_headers(call.route) if call.route else {}
        return Response(body, headers=headers, media_type="application/json")


def _check_embedding(body: EmbeddingBody) -> None:
    """Refuse what would change the vectors and is not supported."""
    if body.messages is not None:
        raise bad_parameter("messages", "are not supported here; write the text as input")
    if body.normalize is not None:
        raise bad_parameter("normalize", "is not supported: vectors are normalised if the model's files say so")
    if body.add_special_tokens is False:
        raise bad_parameter("add_special_tokens", "false is not supported; give token ids as input")


def _listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts
