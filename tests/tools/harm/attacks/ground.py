"""What attackers stand on: where the mesh is, what it serves, and how their requests end."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.tools.harm.harm import End
from tests.tools.harm.http import Line, Reply, exchange, line, request
from tests.tools.harm.meshes import MESH_NAME, MODEL, key_headers
from tests.tools.harm.running import RunningMesh

ATTACKER = "127.0.0.2"
COMPLETIONS = "/v1/completions"
FEW_TOKENS = 4  # of answers that matter only in that they come
SAID_CHARS = 160
NOT_SPOKEN = (501, 505)  # that HTTP is not spoken so: as good as 4xx

Fields = Mapping[str, Any]
Headers = Mapping[str, str]


class ImpossibleHereError(RuntimeError):
    """This machine or user does not allow such an attack. The message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``said``: the beginning of what came back, for the report."""

    end: End
    status: int | None = None
    said: str = ""

    def __str__(self) -> str:
        return f"{self.end}{'' if self.status is None else f' {self.status}'}"


def answer_of(reply: Reply) -> Answer:
    return Answer(_end(reply), reply.status, reply.body[:SAID_CHARS].decode(errors="replace"))


def _end(reply: Reply) -> End:
    if reply.is_late:
        return End.HELD
    if reply.status is None:
        return End.CUT
    if 400 <= reply.status < 500 or reply.status in NOT_SPOKEN:
        return End.REFUSED
    if reply.status >= 500 or b'data: {"error"' in reply.body:
        return End.FAILED
    return End.CUT if reply.is_closed else End.SERVED


@dataclass(frozen=True, slots=True)
class Ground:
    """``patience_s``: how long an attacker waits for an answer. ``hold_s``: how long it clings to a connection."""

    mesh: RunningMesh
    random: Random
    patience_s: float
    hold_s: float

    @property
    def port(self) -> int:
        return self.mesh.deployment.ports[0]

    @property
    def folder(self) -> Path:
        """Where the processes of the mesh keep their files."""
        return self.mesh.deployment.runtime / MESH_NAME

    def key(self, name: str | None) -> dict[str, str]:
        """Headers with the key of that name."""
        return key_headers(self.mesh.deployment, name) if name else {}

    def post(self, path: str, body: Fields | bytes, headers: Headers | None = None) -> bytes:
        return request(self.port, path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def completion(self, fields: Fields, headers: Headers | None = None) -> bytes:
        """A short completion, with these fields beside or instead of the usual ones."""
        usual = {"model": MODEL, "prompt": "Once upon", "max_tokens": FEW_TOKENS}
        return self.post(COMPLETIONS, {**usual, **fields}, headers)

    async def send(self, data: bytes) -> Answer:
        """Any bytes, on a connection of their own."""
        return answer_of(await exchange(self.port, data, self.patience_s, ATTACKER))

    async def send_all(self, requests: Iterable[bytes], at_once: int = 1) -> list[Answer]:
        turns = asyncio.Semaphore(at_once)

        async def one(data: bytes) -> Answer:
            async with turns:
                return await self.send(data)

        return await asyncio.gather(*map(one, requests))

    def line(self, source: str = ATTACKER, receive_bytes: int | None = None) -> AbstractAsyncContextManager[Line]:
        return line(self.port, source, receive_bytes=receive_bytes)
