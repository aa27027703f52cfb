"""Turns errors into HTTP statuses and into what a client is told, at this one place."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from router.generation import Draining, Fault, NoEngines, Overloaded, RequestFailed, RouterError

CLIENT_CLOSED_REQUEST: Final = 499  # nginx's; only logs and metrics ever see it

MESSAGES_PATH: Final = "/v1/messages"  # and those below it are Anthropic's

_MESSAGES_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_STATUSES: Final[Mapping[Fault, int]] = {Fault.CLIENT: 400, Fault.SERVER: 500, Fault.UPSTREAM: 502}
_TYPES: Final[Mapping[int, str]] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer that is an error. ``param`` names the offending parameter, ``code`` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    def messages_body(self) -> bytes:
        """The same in Anthropic's shape."""
        kind = _MESSAGES_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": self.message}})

    def body_for(self, path: str) -> bytes:
        """In the shape of the API that a path belongs to."""
        return self.messages_body() if path.startswith(MESSAGES_PATH) else self.body()


class ClientGoneError(ApiError):
    """The client closed its connection before it was answered."""

    def __init__(self) -> None:
        super().__init__(CLIENT_CLOSED_REQUEST, "the client closed the connection", code="client_closed_request")


def bad_parameter(param: str, message: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"{param}: {message}", param=param, code=code)


def unknown_model(model: str, known: list[str]) -> ApiError:
    message = f"The model {model!r} does not exist; this gateway serves {', '.join(known)}"
    return ApiError(404, message, param="model", code="model_not_found")


def too_long(param: str, num_prompt: int, num_output: int, max_context: int) -> ApiError:
    message = (
        f"The model's context is {max_context} tokens, but {num_prompt + num_output} are asked for: "
        f"{num_prompt} in the prompt and {num_output} for the answer"
    )
    return ApiError(400, message, param=param, code="context_length_exceeded")


def text_too_long(param: str, max_context: int) -> ApiError:
    """Make the error for a text that was not counted to its end."""
    message = f"The model's context is {max_context} tokens, and this text alone has more"
    return ApiError(400, message, param=param, code="context_length_exceeded")


def body_too_large(max_bytes: int) -> ApiError:
    message = f"The body of a request can have at most {max_bytes} bytes"
    return ApiError(413, message, code="request_too_large", headers={"connection": "close"})


def not_known(message: str) -> ApiError:
    """401. What was shown is never part of the message."""
    return ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def not_allowed(message: str, code: str, param: str | None = None) -> ApiError:
    """403: the key is good, but not for this."""
    return ApiError(403, message, param=param, code=code)


def rate_limited(message: str, retry_after_s: float, headers: Mapping[str, str]) -> ApiError:
    return ApiError(429, message, code="rate_limit_exceeded", headers={**headers, **_retry_after(retry_after_s)})


def internal_error(request_id: str) -> ApiError:
    return ApiError(500, f"Internal error; the log has more under request {request_id}", code="internal_error")


def api_error(error: ApiError | RouterError) -> ApiError:
    """Say what the router says as HTTP says it."""
    match error:
        case ApiError():
            return error
        case Overloaded():
            return ApiError(429, str(error), code="rate_limit_exceeded", headers=_retry_after(error.retry_after_s))
        case NoEngines():
            return ApiError(503, str(error), code="no_engines", headers=_retry_after(error.retry_after_s))
        case Draining():
            return ApiError(503, str(error), code="draining", headers={"connection": "close"})
        case RequestFailed():
            return ApiError(_STATUSES[error.fault], str(error), code="request_failed")
        case _:
            return ApiError(500, str(error), code="internal_error")


def _retry_after(seconds: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(seconds)))}
