"""The paths whose calls are passed on to servers of others, if their model is there."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from starlette.types import Message, Receive, Scope
from structlog.typing import FilteringBoundLogger

from mesh.clock import Clock
from mesh.topology.schema import Task
from mesh.wire.requests import RequestSpec, Sampling
from router.api.access.promises import Promise, promise_of_vectors
from router.api.background import Background
from router.api.errors import ApiError, api_error
from router.api.forward.answers import ForwardedChoice, ForwardingCall, forwarded_stream, forwarded_whole
from router.api.forward.body import PATHS, WHOLE_PATHS, AskedCall, AskedFields, call_of, read_asked
from router.api.forward.models import ForwardedModel
from router.api.forward.tokenizing import LONG
from router.api.http.admission import BodyAdmission
from router.api.http.callers import Caller, caller_of
from router.api.http.fast_path import Handler
from router.api.http.headers import Wishes, headers_of
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.input.ids import CallId
from router.api.openai.input.parsing import LARGE_BODY
from router.api.openai.input.reading import read_bytes
from router.api.openai.models import Models
from router.generation import RequestRouter, RouterError
from router.servers.forwarded_call import (
    CHAT,
    COMPLETIONS,
    AnswerForm,
    CallBody,
    ForwardedCall,
    ForwardedCalls,
    Headers,
)
from router.servers.stream.chunks import Rewriter
from router.traces.call_trace import CallFacts, CallTrace

MAX_HEADER_BYTES: Final = 16_384  # that are passed on
PREFIXES: Final = {CHAT: "chatcmpl-", COMPLETIONS: "cmpl-"}  # of ids of answers; others keep the server's
OPERATIONS: Final = {CHAT: "chat", COMPLETIONS: "text_completion"}
TRACE: Final = "traceparent"
NOT_FORWARDED: Final = frozenset({
    "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie",
    "expect", "forwarded", "host", "keep-alive", "origin", "proxy-authenticate", "proxy-authorization",
    "proxy-connection", "referer", "te", "trailer", "transfer-encoding", "upgrade", "via", "x-api-key", "x-priority",
    "x-late", "x-request-id", "x-slo-tpot-ms", "x-slo-ttft-ms", "x-gateway-inference-fairness-id",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
})  # fmt: skip

Tokenize = Callable[[str, CallBody], Awaitable[list[int] | None]]
T = TypeVar("T")

log = structlog.get_logger()


async def no_tokens(service: str, body: CallBody) -> list[int] | None:
    """Stand for servers that tell no tokens."""
    return None


@dataclass(frozen=True, slots=True)
class ForwardParts:
    """What forwarding is made of."""

    gateway: str
    router: RequestRouter
    calls: ForwardedCalls
    models: Models
    metrics: GatewayMetrics
    admission: BodyAdmission
    background: Background
    clock: Clock
    max_body_bytes: int
    tokenize: Tokenize  # by a server of a service


class ForwardRoutes:
    """``own``: the handlers of paths whose model the mesh itself has; others are for servers alone."""

    def __init__(self, parts: ForwardParts, own: Mapping[str, Handler]) -> None:
        self._parts = parts
        self._own = own
        self._log: FilteringBoundLogger = log.bind()

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by path; all take POST."""
        return {path: partial(self._handle, path) for path in PATHS}

    def install(self, app: FastAPI) -> None:
        """Add the paths that the mesh's own models do not have."""
        for path, handle in self.handlers.items():
            if path not in self._own:
                app.add_api_route(path, _route(handle), methods=["POST"])

    async def _handle(self, path: str, request: Request) -> Response:
        parts = self._parts
        arrived_s, caller = parts.clock.now(), caller_of(request.scope)
        with parts.admission.enter(caller.peer) as entry:
            data = await read_bytes(request, parts.max_body_bytes, entry)
            asked = await self._aside(data, caller, partial(read_asked, data))
            model = parts.models.find_any(asked.model, caller)
            if isinstance(model, ForwardedModel):
                call = await self._begin(path, data, asked, model, request, arrived_s)
        if not isinstance(model, ForwardedModel):
            return await self._serve_ourselves(path, request, data)
        if call.choice.call.body.form is AnswerForm.WHOLE:
            return await forwarded_whole(call, request.receive)
        return forwarded_stream(call)

    async def _order(
        self, path: str, data: bytes, asked: AskedFields, passed: Headers, model: ForwardedModel, caller: Caller
    ) -> AskedCall:
        """With the tokens of its prompt, or numbers in their place."""
        read = partial(call_of, path, data, asked, passed, model.tokenizer)
        if model.tokenizer is not None and len(data) > LONG:
            return await self._parts.background.run(caller.tenant, read)
        order = await self._aside(data, caller, read)
        if not model.asks_server:
            return order
        tokens = await self._parts.tokenize(model.service, order.body)
        return order if tokens is None else msgspec.structs.replace(order, prompt=tokens, is_estimated=False)

    async def _aside(self, data: bytes, caller: Caller, work: Callable[[], T]) -> T:
        """Large bodies are read beside the event loop."""
        return work() if len(data) <= LARGE_BODY else await self._parts.background.run(caller.tenant, work)

    async def _serve_ourselves(self, path: str, request: Request, data: bytes) -> Response:
        """The mesh's own model: its handler reads the body again."""
        handle = self._own.get(path)
        if handle is None:
            raise ApiError(404, f"{path} is for models on servers of others, and this one is not", code="not_found")
        return await handle(Request(request.scope, _replayed(data, request.receive)))

    async def _begin(
        self, path: str, data: bytes, asked: AskedFields, model: ForwardedModel, request: Request, arrived_s: float
    ) -> ForwardingCall:
        scope, caller = request.scope, caller_of(request.scope)
        headers = headers_of(scope)
        promise_of = Promise.of if model.task is Task.GENERATE else promise_of_vectors
        promise = promise_of(Wishes.of(headers), model, caller)
        call_id, trace = CallId.draw(scope["state"]["request_id"]), _trace_of(scope)
        passed = _passed(headers, call_id, trace)
        order = await self._order(path, data, asked, passed, model, caller)
        spec = self._spec(call_id, model, order, promise, arrived_s, caller.cache_salt)
        prefix = PREFIXES.get(path)
        rewriter = Rewriter(prefix and call_id.answer(prefix), asked.model or model.service)
        call = ForwardedCall(
            spec.id,
            order.body,
            rewriter,
            bound=order.num_choices * model.bound(asked.most_tokens),
            num_choices=order.num_choices,
            most_tokens=asked.most_tokens,
            max_context=model.max_context,
            is_estimated=order.is_estimated,
        )
        if trace is not None:
            trace.describe = partial(_facts, call_id, path, asked, model, order.num_choices)
        try:
            return self._submit(call, spec, caller, trace, call_id)
        finally:
            if trace is not None:
                trace.close()

    def _spec(
        self,
        call_id: CallId,
        model: ForwardedModel,
        order: AskedCall,
        promise: Promise,
        arrived_s: float,
        cache_salt: str,
    ) -> RequestSpec:
        has_answer = order.body.path not in WHOLE_PATHS
        most = order.num_choices * model.most_tokens(order.asked.most_tokens, len(order.prompt))
        return RequestSpec(
            id=call_id.choice(0),
            gateway=self._parts.gateway,
            service=model.service,
            prompt=order.prompt,
            sampling=Sampling(max_tokens=most if has_answer else 1, seed=0),
            slo_ttft_s=promise.slo.ttft_s,
            slo_tpot_s=promise.slo.tpot_s,
            priority=promise.priority,
            age_s=self._parts.clock.now() - arrived_s,
            late=promise.late,
            cache_salt=cache_salt,
        )

    def _submit(
        self, call: ForwardedCall, spec: RequestSpec, caller: Caller, trace: CallTrace | None, call_id: CallId
    ) -> ForwardingCall:
        """Raise `RouterError` if the router does not take it; then nothing of it runs."""
        parts, metrics = self._parts, self._parts.metrics.of_call(spec.service, spec.priority)
        charge = caller.begin(len(spec.prompt) + spec.sampling.max_tokens)
        named = {} if trace is None else {"trace": trace.name}
        parts.calls.add(call)
        try:
            generation = parts.router.submit(spec, caller.tenant, trace)
        except BaseException as error:
            parts.calls.remove(call.id)
            if charge is not None:
                charge.settle(0)
            if isinstance(error, RouterError):
                metrics.failed(code := api_error(error).code or "", broke_promise=True)
                about = {"request": call_id.request_id, "service": spec.service, "code": code, "reason": str(error)}
                self._log.info("refused", **about, **named)
            raise
        choice = ForwardedChoice(generation, spec.prompt, call)
        return ForwardingCall(
            request_id=call_id.request_id,
            choices=(choice,),
            metrics=metrics,
            n=1,
            log=self._log,
            charge=charge,
            named=named,
            choice=choice,
            calls=parts.calls,
        )


def _route(handle: Handler) -> Handler:
    """With a signature that the web framework can read."""

    async def route(request: Request) -> Response:
        return await handle(request)

    return route


def _replayed(data: bytes, receive: Receive) -> Receive:
    """Say again what was received, then go on."""
    has_said = False

    async def replay() -> Message:
        nonlocal has_said
        if has_said:
            return await receive()
        has_said = True
        return {"type": "http.request", "body": data, "more_body": False}

    return replay


def _trace_of(scope: Scope) -> CallTrace | None:
    trace: CallTrace | None = scope["state"].get("trace")
    return trace


def _passed(headers: Mapping[str, str], call_id: CallId, trace: CallTrace | None) -> Headers:
    """What of a client's headers is the server's business. The others end here, as those of any connection do."""
    passed = [field for field in headers.items() if field[0] not in NOT_FORWARDED]
    if "connection" in headers:
        named = {name.strip().lower() for name in headers["connection"].split(",")}
        passed = [field for field in passed if field[0] not in named]
    if passed and sum([len(name) + len(value) for name, value in passed]) > MAX_HEADER_BYTES:
        raise ApiError(
            431, f"The headers for the server can have at most {MAX_HEADER_BYTES} bytes", code="headers_size"
        )
    own = ("x-request-id", call_id.request_id)
    if trace is None:  # who makes no traces hands on the client's
        return (*passed, own)
    return (*[field for field in passed if field[0] != TRACE], own, (TRACE, trace.header))


def _facts(call_id: CallId, path: str, asked: AskedFields, model: ForwardedModel, num_choices: int) -> CallFacts:
    """What its trace tells of it."""
    prefix = PREFIXES.get(path)
    return CallFacts(
        request_id=call_id.request_id,
        response_id=call_id.answer(prefix or "call-"),
        operation=OPERATIONS.get(path, path.rpartition("/")[2]),
        model=asked.model or model.service,
        is_stream=bool(asked.stream),
        num_choices=num_choices,
    )
