"""Reads the refusals of gateways: what commands that ask over HTTP say of them."""

from typing import TYPE_CHECKING

from mesh.errors import UserError

if TYPE_CHECKING:
    import httpx


def check_answer(response: "httpx.Response") -> None:
    """Raise `UserError` with the server's own words if it refuses. Its body has been read."""
    if not response.is_error:
        return
    try:
        reason = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        reason = response.reason_phrase
    raise UserError(f"{response.url}: {response.status_code}: {reason}")
