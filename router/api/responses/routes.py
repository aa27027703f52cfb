"""The routes /v1/responses, and /v1/responses/ID for those that are kept."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response

from mesh.clock import Clock
from router.api.errors import ApiError, bad_parameter
from router.api.http.callers import caller_of
from router.api.http.fast_path import Handler
from router.api.openai.answers.whole import json_answer, said_of
from router.api.openai.body_reader import BodyReader
from router.api.openai.chat.chat_calls import ChatCalls
from router.api.openai.chat.renamed import renaming
from router.api.openai.input.prompts import MANY_MESSAGES
from router.api.openai.input.schema import body_schema
from router.api.responses.answers import ResponseShape, ResponseStream
from router.api.responses.bodies import Item, ResponsesBody
from router.api.responses.output import Json
from router.api.responses.store import StoredResponse
from router.api.responses.stored import StoredResponses
from router.api.responses.translation import NAMES, chat_of_response, check_response, items_of

RESPONSES: Final = "/v1/responses"
MOST_LISTED: Final = 100

_ITEMS: Final = msgspec.json.Decoder(list[Item])
_RESPONSE: Final = msgspec.json.Decoder(dict[str, Any])
_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}


class ResponseRoutes:
    """``wall_clock``: seconds since the epoch."""

    def __init__(
        self,
        chats: ChatCalls,
        bodies: BodyReader,
        stored: StoredResponses,
        clock: Clock,
        wall_clock: Callable[[], float],
    ) -> None:
        self._chats = chats
        self._bodies = bodies
        self._stored = stored
        self._clock = clock
        self._wall_clock = wall_clock

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by path; all take POST."""
        return {RESPONSES: self.respond}

    def install(self, app: FastAPI) -> None:
        app.add_api_route(RESPONSES, self.respond, methods=["POST"], openapi_extra=body_schema(ResponsesBody))
        app.add_api_route(RESPONSES + "/{response_id}", self.retrieve, methods=["GET"])
        app.add_api_route(RESPONSES + "/{response_id}", self.delete, methods=["DELETE"])
        app.add_api_route(RESPONSES + "/{response_id}/input_items", self.list_items, methods=["GET"])

    async def respond(self, request: Request) -> Response:
        arrived_s = self._clock.now()
        with self._bodies.enter(request) as entry:
            body = await self._bodies.translated(request, ResponsesBody, entry, _checked)
            before, items = await self._before(body, request), items_of(body)
            translate = partial(chat_of_response, body, before, items)
            chat_body = await self._bodies.aside(request, translate, is_long=len(before) + len(items) > MANY_MESSAGES)
            with renaming(NAMES):
                chat = await self._chats.begin(chat_body, request, arrived_s, "resp_")
        stores = body.store is not False and self._stored.path is not None
        shape = ResponseShape(chat, body, [*before, *items], stores)
        keep = partial(self._keep, shape, caller_of(request.scope).owner)
        if body.stream:
            return ResponseStream(shape, keep)
        with renaming(NAMES):
            said = await said_of(chat.call, request.receive)
        return json_answer(chat.call, await keep(shape.whole(said, chat.call.choices[0], chat.call.usage)))

    async def _before(self, body: ResponsesBody, request: Request) -> Sequence[Item]:
        """Return what was said up to the end of the response that this one goes on from."""
        id_ = body.previous_response_id
        if id_ is None:
            return ()
        found = await self._stored.get(id_, caller_of(request.scope).owner, self._wall_clock())
        if found is None:
            message = f"previous_response_id: {_not_kept(id_)}"
            raise ApiError(404, message, param="previous_response_id", code="previous_response_not_found")
        is_long = found.num_bytes > 16_384
        return await self._bodies.aside(request, partial(_said_until, found), is_long=is_long)

    async def _keep(self, shape: ResponseShape, owner: str, response: Json) -> Json:
        """Put a response into the store, if it is to be there, and return it: it says whether it is there."""
        if not response["store"]:
            return response
        encode = msgspec.json.encode
        kept = StoredResponse(shape.id, owner, self._wall_clock(), encode(response), encode(shape.items))
        return response | {"store": await self._stored.keep(kept)}

    # --- what is kept -------------------------------------------------------------------------------------------------

    async def retrieve(self, response_id: str, request: Request) -> Response:
        """Return a response that is kept."""
        if request.query_params.get("stream") not in (None, "false"):
            raise bad_parameter("stream", "is not supported here: a response that is kept comes whole")
        return Response((await self._find(response_id, request)).response, media_type="application/json")

    async def delete(self, response_id: str, request: Request) -> Response:
        """Forget a response."""
        if not await self._stored.delete(response_id[:256], caller_of(request.scope).owner):
            raise ApiError(404, _not_kept(response_id), code="not_found")
        return _json({"id": response_id, "object": "response", "deleted": True})

    async def list_items(self, response_id: str, request: Request) -> Response:
        """List what was said before a response, the newest first unless ``order`` is ``asc``."""
        limit, order, after = _page(request)
        found = await self._find(response_id, request)
        items = await self._bodies.aside(
            request, partial(_named_items, found, is_newest_first=order == "desc"), is_long=found.num_bytes > 16_384
        )
        start = next((index + 1 for index, item in enumerate(items) if item["id"] == after), 0)
        if after is not None and start == 0:
            raise bad_parameter("after", f"no item {after[:64]!r} of this response")
        page = items[start : start + limit]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return _json({"object": "list", "data": page, **ends, "has_more": start + limit < len(items)})

    async def _find(self, id_: str, request: Request) -> StoredResponse:
        found = await self._stored.get(id_[:256], caller_of(request.scope).owner, self._wall_clock())
        if found is None:
            raise ApiError(404, _not_kept(id_), code="not_found")
        return found


def _checked(body: ResponsesBody) -> ResponsesBody:
    check_response(body)
    return body


def _not_kept(id_: str) -> str:
    return f"this gateway keeps no response {id_[:64]!r} for this key; `store` keeps one for a while"


def _said_until(found: StoredResponse) -> list[Item]:
    output = _RESPONSE.decode(found.response)["output"]
    return [*_ITEMS.decode(found.items), *msgspec.convert(output, list[Item])]


def _named_items(found: StoredResponse, *, is_newest_first: bool) -> list[Json]:
    """Each has an id, its own or one that it always gets."""
    token = found.id.rpartition("_")[2]
    items: list[Json] = []
    for index, item in enumerate(_ITEMS.decode(found.items)):
        shown = msgspec.to_builtins(item)
        if isinstance(item.content, str):
            kind = "output_text" if item.role == "assistant" else "input_text"
            shown["content"] = [{"type": kind, "text": item.content}]
        given = {"id": f"{_PREFIXES.get(item.type or '', 'item')}_{token}_in{index}", "status": "completed"}
        items.append(given | shown)
    return items[::-1] if is_newest_first else items


def _page(request: Request) -> tuple[int, str, str | None]:
    """Return ``limit``, ``order`` and ``after`` of a query. Raise `ApiError` if they are none."""
    query = request.query_params
    limit, order = query.get("limit", "20"), query.get("order", "desc")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= MOST_LISTED):
        raise bad_parameter("limit", f"must be an integer in 1..{MOST_LISTED}, not {limit[:32]!r}")
    if order not in ("asc", "desc"):
        raise bad_parameter("order", f"must be asc or desc, not {order[:32]!r}")
    return int(limit), order, query.get("after")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
