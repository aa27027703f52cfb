"""Single questions to a server: what it serves, how it counts."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench.load.client.answer import OK
from bench.load.client.chunks import error_of_body
from bench.load.client.http import HttpClient, HttpError
from mesh.errors import UserError

ANSWER_S = 30.0


class StatusError(HttpError):
    """An answer that is none."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


@dataclass(slots=True)
class _Whole:
    status: int = 0
    data: bytearray = field(default_factory=bytearray)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.status = status

    def body(self, data: bytes, now: float) -> None:
        self.data += data

    def end(self, now: float) -> None:
        pass


async def fetch_json(client: HttpClient, method: str, path: str, body: object = None) -> Any:
    """Raise `HttpError`, or `ValueError` if the answer is not JSON."""
    answer = _Whole()
    data = b"" if body is None else msgspec.json.encode(body)
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.request(method, path, data, answer)
    except TimeoutError:
        raise HttpError(f"no answer within {ANSWER_S:g} s") from None
    if answer.status != OK:
        raise StatusError(answer.status, error_of_body(bytes(answer.data)))
    return msgspec.json.decode(bytes(answer.data))


class _Model(msgspec.Struct):
    id: str
    root: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


async def served_models(client: HttpClient, url: str) -> dict[str, str] | None:
    """The names that may be asked for, each with the model behind it; None if the server does not tell.

    Raise `UserError` if there is no server, or it does not let us in.
    """
    try:
        models = msgspec.convert(await fetch_json(client, "GET", "/v1/models"), _Models)
    except StatusError as error:
        if error.status in {401, 403}:
            wanted = "give --api-key-file, or set MESHSERVE_API_KEY"
            raise UserError(f"{url}/v1/models: {error}; {wanted}") from None
        return None
    except HttpError as error:
        raise UserError(f"no server answers at {url}: {error}; start one, or say where with --url") from None
    except ValueError:
        return None
    return {model.id: model.root or model.id for model in models.data}
