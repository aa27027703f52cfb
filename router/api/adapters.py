"""Adds and removes LoRA adapters while the mesh runs, by the paths and bodies that vLLM's clients know."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import FastAPI, Request, Response
from msgspec import Meta

from mesh.wire.adapters import AddAdapter
from router.adapters.adding import AddingError
from router.adapters.orders import AdapterConflictError, AdapterExistsError, AdapterOrders, AdapterUnknownError
from router.api.background import Background
from router.api.errors import ApiError, bad_parameter
from router.api.http.admission import BodyAdmission
from router.api.http.callers import caller_of
from router.api.openai.input.bodies import MAX_NAME, Body
from router.api.openai.input.reading import read_body
from router.api.openai.input.schema import body_schema

MAX_BYTES: Final = 16_384  # of a body
LOAD_PATH: Final = "/v1/load_lora_adapter"
UNLOAD_PATH: Final = "/v1/unload_lora_adapter"

Word = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class LoadAdapterBody(Body, kw_only=True, forbid_unknown_fields=True):
    """``lora_path``: below the folder of ``[adapters]``. ``base_model_name``: the service, if several fit."""

    lora_name: Word
    lora_path: Word
    base_model_name: Word | None = None
    load_inplace: bool = False  # as vLLM has it: take the place of one that has this name


class UnloadAdapterBody(Body, kw_only=True, forbid_unknown_fields=True):
    lora_name: Word
    lora_int_id: int | None = None  # vLLM's; there are no such numbers here


@dataclass(frozen=True, slots=True)
class AdapterScope:
    """Says who carries orders out, and which addresses take them."""

    orders: AdapterOrders
    on_public: bool
    on_admin: bool


class AdapterRoutes:
    """Routes for operators."""

    def __init__(self, scope: AdapterScope, admission: BodyAdmission, background: Background) -> None:
        self._orders = scope.orders
        self._admission = admission
        self._background = background

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
        order = AddAdapter(body.lora_name, body.lora_path, body.base_model_name, body.load_inplace)
        try:
            await self._orders.add(order, caller_of(request.scope).tenant)
        except AddingError as fault:
            raise _refusal(fault) from None
        return _said(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        """Take an adapter away: requests that run end as they would."""
        with self._admission.enter(caller_of(request.scope).peer) as entry:
            body = await read_body(request, UnloadAdapterBody, MAX_BYTES, entry, self._background)
        try:
            await self._orders.remove(body.lora_name, caller_of(request.scope).tenant)
        except AddingError as fault:
            raise _refusal(fault) from None
        return _said(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


def _refusal(fault: AddingError) -> ApiError:
    match fault:
        case AdapterExistsError():
            message = f"{fault}; load_inplace: true puts another in its place"
            return ApiError(400, message, param=fault.param, code="adapter_exists")
        case AdapterUnknownError():
            return ApiError(404, str(fault), param=fault.param, code="adapter_not_found")
        case AdapterConflictError():
            return ApiError(409, str(fault), code="conflict")
    return bad_parameter(fault.param, str(fault))


def _said(text: str) -> Response:
    """As vLLM says it."""
    return Response(text, media_type="text/plain")
