"""Takes orders of operators: another dispatch policy for the mesh, and what single engines are to do.

The same messages leave as from ``mesh policy``, ``mesh drain``, ``mesh load`` and ``mesh unload``. Statuses tell what
came of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from msgspec import Meta, field

from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Drain, LoadService, Parameter, PolicyChoice, ProcessState, UnloadService
from mesh.wire.status import EngineStatus, ServiceStatus
from router.api.background import Background
from router.api.errors import ApiError, bad_parameter
from router.api.http.admission import BodyAdmission
from router.api.http.callers import caller_of
from router.api.openai.input.bodies import MAX_NAME, Body
from router.api.openai.input.reading import read_body
from router.api.openai.input.schema import body_schema
from router.policies.catalogue import catalogue

MAX_BYTES: Final = 16_384  # of a body
MAX_PARAMETERS: Final = 64
TOLD: Final = "The engine was told; its statuses tell the outcome"
ACCEPTED: Final[dict[int | str, dict[str, Any]]] = {202: {"description": TOLD}}

Order = Drain | LoadService | UnloadService
Word = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
B = TypeVar("B", bound=Body)

log = structlog.get_logger()


class PolicyBody(Body, kw_only=True, forbid_unknown_fields=True):
    """A policy and those of its parameters that are not to have their defaults."""

    name: Word
    parameters: Annotated[dict[Word, Parameter], Meta(max_length=MAX_PARAMETERS)] = field(default_factory=dict)


class DrainBody(Body, kw_only=True, forbid_unknown_fields=True):
    undo: bool = False


class LoadBody(Body, kw_only=True, forbid_unknown_fields=True):
    service: Word


class UnloadBody(Body, kw_only=True, forbid_unknown_fields=True):
    """``last``: even if no other engine serves it."""

    service: Word
    last: bool = False


class Operated(Protocol):
    """What is ordered about. A gateway's `Router` is."""

    @property
    def policy(self) -> PolicyChoice:
        """Return the policy in force."""

    def choose_policy(self, spec: PolicySpec) -> PolicyChoice:
        """Run this policy in all gateways from now on. Raise `UserError` if there is none such."""

    def statuses(self) -> Mapping[str, EngineStatus]:
        """Return what the living engines said last."""

    def order(self, engine: str, order: Order) -> None:
        """Tell an engine."""


@dataclass(frozen=True, slots=True)
class OrderScope:
    """Whom orders may concern. ``engines`` and ``services``: names of the topology."""

    operated: Operated
    engines: tuple[str, ...]
    services: tuple[str, ...]


class OrderRoutes:
    """Routes of the admin address: whoever may see the mesh there may change it."""

    def __init__(self, scope: OrderScope, admission: BodyAdmission, background: Background) -> None:
        self._scope = scope
        self._operated = scope.operated
        self._admission = admission
        self._background = background

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/policies", self.policies, methods=["GET"])
        app.add_api_route("/mesh/policy", self.switch, methods=["POST"], openapi_extra=body_schema(PolicyBody))
        for path, handle, kind in (
            ("/mesh/engines/{engine}/drain", self.drain, DrainBody),
            ("/mesh/engines/{engine}/load", self.load, LoadBody),
            ("/mesh/engines/{engine}/unload", self.unload, UnloadBody),
        ):
            app.add_api_route(path, handle, methods=["POST"], openapi_extra=body_schema(kind), responses=ACCEPTED)

    # --- policies -----------------------------------------------------------------------------------------------------

    async def policies(self) -> Response:
        """Which policies there are, and which one runs."""
        return _json({"policies": catalogue(), "runs": self._operated.policy})

    async def switch(self, request: Request) -> Response:
        """The gateway runs it when this is answered; the others take it with its next status."""
        body = await self._read(request, PolicyBody)
        try:
            choice = self._operated.choose_policy(PolicySpec(body.name, body.parameters))
        except UserError as error:
            raise _bad_policy(str(error)) from None
        log.info("an operator switched the policy", by=caller_of(request.scope).tenant, policy=choice.name)
        return _json({"runs": choice})

    # --- engines ------------------------------------------------------------------------------------------------------

    async def drain(self, engine: str, request: Request) -> Response:
        """Empty an engine, or let it serve again."""
        body = await self._read(request, DrainBody)
        state = self._status(engine).state
        if state not in (ProcessState.READY, ProcessState.DRAINING):
            raise _conflict(f"{engine} is {state}: only what is ready can be drained")
        is_done = (state is ProcessState.READY) == body.undo
        return self._order(engine, Drain(undo=body.undo), request, is_done=is_done)

    async def load(self, engine: str, request: Request) -> Response:
        """Let an engine serve one more service."""
        body = await self._read(request, LoadBody)
        status = self._status(engine)
        self._check_service(body.service)
        is_done = _serves(status, body.service) or body.service in status.loading
        return self._order(engine, LoadService(body.service), request, is_done=is_done)

    async def unload(self, engine: str, request: Request) -> Response:
        """Take a service from an engine; from the last one that has it only if that is said."""
        body = await self._read(request, UnloadBody)
        held = _of(self._status(engine), body.service)
        self._check_service(body.service)
        others = [name for name, status in self._operated.statuses().items() if _serves(status, body.service)]
        if held is not None and not set(others) - {engine} and not body.last:
            message = f"{engine} is the only engine that serves {body.service}; last: true takes it away all the same"
            raise _conflict(message)
        is_done = held is None or held.is_leaving
        return self._order(engine, UnloadService(body.service), request, is_done=is_done)

    def _order(self, engine: str, order: Order, request: Request, *, is_done: bool) -> Response:
        """Tell the engine, unless it is so already."""
        if not is_done:
            log.info("an operator ordered", by=caller_of(request.scope).tenant, engine=engine, order=repr(order))
            self._operated.order(engine, order)
        return _json({"engine": engine, "done": is_done}, 200 if is_done else 202)

    def _status(self, engine: str) -> EngineStatus:
        if engine not in self._scope.engines:
            message = f"There is no engine {engine[:64]!r}; {suggestion(engine[:64], self._scope.engines)}"
            raise ApiError(404, message, code="engine_not_found")
        status = self._operated.statuses().get(engine)
        if status is None:
            raise _conflict(f"{engine} says nothing: it does not run, or is silent")
        return status

    def _check_service(self, service: str) -> None:
        if service not in self._scope.services:
            raise bad_parameter("service", f"no service {service!r}; {suggestion(service, self._scope.services)}")

    async def _read(self, request: Request, kind: type[B]) -> B:
        with self._admission.enter(caller_of(request.scope).peer) as entry:
            return await read_body(request, kind, MAX_BYTES, entry, self._background)


def _of(status: EngineStatus, service: str) -> ServiceStatus | None:
    return next((one for one in status.services if one.name == service), None)


def _serves(status: EngineStatus, service: str) -> bool:
    found = _of(status, service)
    return found is not None and not found.is_leaving


def _bad_policy(message: str) -> ApiError:
    """The registry's words begin with a place in a topology."""
    place, _, fault = message.removeprefix("[policy] ").partition(": ")
    return bad_parameter(place if place == "name" else f"parameters.{place}", fault)


def _conflict(message: str) -> ApiError:
    return ApiError(409, message, code="conflict")


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
