"""Lists in pages, and the ids in paths."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from router.api.errors import bad_parameter

ID: Final = re.compile(r"(file|batch)[-_][0-9a-z-]{1,80}")
USUAL_LIMIT: Final = 20


@dataclass(frozen=True, slots=True)
class PageAsked:
    """Which part of a list is wanted. ``after``: the id of the last one seen before."""

    after: str | None
    limit: int


def page_asked(request: Request, most: int) -> PageAsked:
    """Raise `ApiError` (400) for what is none."""
    after, limit = request.query_params.get("after"), request.query_params.get("limit", str(USUAL_LIMIT))
    if after is not None and not ID.fullmatch(after):
        raise bad_parameter("after", "is no id")
    if not (limit.isascii() and limit.isdecimal()) or len(limit) > 6 or not 1 <= int(limit) <= most:
        raise bad_parameter("limit", f"must be a number in 1..{most}")
    return PageAsked(after, int(limit))


def page(shown: Sequence[dict[str, object]], *, has_more: bool) -> dict[str, object]:
    """One page of a list, as OpenAI has it."""
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    return {"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": has_more}


def json_response(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
