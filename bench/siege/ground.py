"""What attackers stand on: where the mesh is, what it serves, and how to shoot at it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench.chaos.deployment import MESH_NAME
from bench.chaos.running import RunningMesh
from bench.siege.answers import Answer, answer_of
from bench.siege.http import Line, exchange, line, request

ATTACKER = "127.0.0.2"
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
HONEST, RIVAL, LIMITED, EXPIRED = "honest", "rival", "limited", "expired"  # names of keys
FEW_TOKENS = 4  # of answers that matter only in that they come


def key_path(folder: Path, name: str) -> Path:
    """Where the owner of a key of that name keeps it, beside a topology that asks for keys."""
    return folder / f"{name}.key"


@dataclass(frozen=True, slots=True)
class Ground:
    """``patience_s``: how long an attacker waits for an answer. ``hold_s``: how long it clings to a connection."""

    mesh: RunningMesh
    model: str
    max_context: int
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

    def key(self, name: str) -> dict[str, str]:
        """The header of a key; none where keys are not asked for."""
        path = key_path(self.mesh.deployment.path.parent, name)
        return {"authorization": f"Bearer {path.read_text()}"} if path.exists() else {}

    async def send(self, data: bytes, source: str = ATTACKER) -> Answer:
        """Any bytes, on a connection of their own."""
        return answer_of(await exchange(self.port, data, self.patience_s, source))

    async def post(
        self,
        path: str,
        body: "Mapping[str, Any] | bytes",
        headers: Mapping[str, str] | None = None,
        source: str = ATTACKER,
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send(request(self.port, path, data, headers), source)

    async def complete(
        self, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None, source: str = ATTACKER
    ) -> Answer:
        """A short completion, with these fields beside or instead of the usual ones."""
        return await self.post(COMPLETIONS, self.completion(fields), headers, source)

    def completion(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"model": self.model, "prompt": "Once upon", "max_tokens": FEW_TOKENS, **fields}

    async def chat(self, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        messages = [{"role": "user", "content": "Hello!"}]
        body = {"model": self.model, "messages": messages, "max_tokens": FEW_TOKENS, **fields}
        return await self.post(CHATS, body, headers)

    async def all_of(
        self, variants: Sequence[Mapping[str, Any]], headers: Mapping[str, str] | None = None, at_once: int = 4
    ) -> list[Answer]:
        """Short completions, a few at a time."""
        turns = asyncio.Semaphore(at_once)

        async def one(fields: Mapping[str, Any]) -> Answer:
            async with turns:
                return await self.complete(fields, headers)

        return list(await asyncio.gather(*map(one, variants)))

    @asynccontextmanager
    async def line(self, source: str = ATTACKER, receive_bytes: int | None = None) -> AsyncIterator[Line]:
        async with line(self.port, source, receive_bytes=receive_bytes) as opened:
            yield opened
