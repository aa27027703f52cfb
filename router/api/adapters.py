"""Adds and removes LoRA adapters while the mesh runs, by the paths and bodies that vLLM's clients know."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

import structlog
from fastapi import FastAPI, Request, Response
from msgspec import Meta

from mesh.topology.schema import Topology
from mesh.wire.adapters import AddedAdapter
from router.adapters.added import AddedAdapters
from router.adapters.adding import AddingError, adapter_to_add
from router.api.errors import ApiError, bad_parameter
from router.api.http.admission import BodyAdmission
from router.api.http.callers import caller_of
from router.api.openai.input.background import Background
from router.api.openai.input.bodies import MAX_NAME, Body
from router.api.openai.input.reading import read_body
from router.api.openai.input.schema import body_schema

MAX_BYTES: Final = 16_384  # of a body
LOAD_PATH: Final = "/v1/load_lora_adapter"
UNLOAD_PATH: Final = "/v1/unload_lora_adapter"

Word = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]

log = structlog.get_logger()


class LoadAdapterBody(Body, kw_only=True, forbid_unknown_fields=True):
    """``lora_path``: below the folder of ``[adapters]``. ``base_model_name``: the service, if several fit."""

    lora_name: Word
    lora_path: Word
    base_model_name: Word | None = None
    load_inplace: bool = False  # as vLLM has it: take the place of one that has this name


class UnloadAdapterBody(Body, kw_only=True, forbid_unknown_fields=True):
    lora_name: Word
    lora_int_id: int | None = None  # vLLM's; there are no such numbers here


class ServesAdapters(Protocol):
    """What serves adapters. A gateway's `Router` does."""

    @property
    def added(self) -> AddedAdapters:
        """Return those that were added."""

    def serve_adapter(self, wanted: AddedAdapter) -> bool:
        """Serve it from now on, in all gateways. Return whether that is so now."""


@dataclass(frozen=True, slots=True)
class AdapterScope:
    """Says whose services are bases and where adapters may be, who serves them, and which addresses take orders."""

    topology: Topology
    router: ServesAdapters
    on_public: bool
    on_admin: bool


class AdapterRoutes:
    """Routes for operators."""

    def __init__(self, scope: AdapterScope, admission: BodyAdmission, background: Background) -> None:
        self._topology = scope.topology
        self._router = scope.router
        self._admission = admission
        self._background = background
        self._turn = asyncio.Lock()  # two that read files at a time could take the same name

    def install(self, app: FastAPI) -> None:
        routes: tuple[tuple[str, Any, type[Body]], ...] = (
            (LOAD_PATH, self.load, LoadAdapterBody),
            (UNLOAD_PATH, self.unload, UnloadAdapterBody),
        )
        for path, handle, kind in routes:
            app.add_api_route(path, handle, methods=["POST"], openapi_extra=body_schema(kind))

    async def load(self, request: Request) -> Response:
        """Serve an adapter under a name. It is read now, and loaded on engines as memory allows."""
        with self._admission.enter(caller_of(request.scope).peer) as entry:
            body = await read_body(request, LoadAdapterBody, MAX_BYTES, entry, self._background)
        name = body.lora_name
        async with self._turn:
            served = self._router.added.served
            if name in served and not body.load_inplace:
                message = f"The adapter {name!r} is served already; load_inplace: true puts another in its place"
                raise ApiError(400, message, param="lora_name", code="adapter_exists")
            try:
                wanted = await asyncio.to_thread(
                    adapter_to_add, self._topology, served, name, body.lora_path, body.base_model_name
                )
            except AddingError as fault:
                raise bad_parameter(fault.param, str(fault)) from None
            self._serve(wanted, request)
        return _said(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        """Take an adapter away: requests that run end as they would."""
        with self._admission.enter(caller_of(request.scope).peer) as entry:
            body = await read_body(request, UnloadAdapterBody, MAX_BYTES, entry, self._background)
        name = body.lora_name
        served = self._router.added.served
        if name not in served:
            is_named = any(name == service.name for service in self._topology.adapters)
            why = "is of the deployment's file, and stays" if is_named else "is not served"
            raise ApiError(404, f"The adapter {name!r} {why}", param="lora_name", code="adapter_not_found")
        known = served[name]
        self._serve(AddedAdapter(known.adapter, known.base, 0, is_removed=True), request)
        return _said(f"Success: LoRA adapter '{name}' removed successfully.")

    def _serve(self, wanted: AddedAdapter, request: Request) -> None:
        name, tenant = wanted.adapter.service, caller_of(request.scope).tenant
        log.info("an operator changed adapters", by=tenant, adapter=name, base=wanted.base, removed=wanted.is_removed)
        if not self._router.serve_adapter(wanted):
            raise ApiError(409, f"The adapter {name!r} was changed by others meanwhile", code="conflict")


def _said(text: str) -> Response:
    """As vLLM says it."""
    return Response(text, media_type="text/plain")
