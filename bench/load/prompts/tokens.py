"""Who counts tokens for the load generator: a tokenizer here, or the server's own through ``/tokenize``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.load.client.fetch import fetch_json
from bench.load.client.http import HttpClient, HttpError
from bench.load.generator.wire import Api
from engines.models.errors import ModelError
from engines.models.store import prepared_dir
from engines.models.text.chat_template import Chat, ChatError
from engines.models.text.tokenizer import Tokenizer
from mesh.errors import UserError


@dataclass(frozen=True, slots=True)
class LocalTokens:
    """A model's tokenizer from its folder."""

    name: str
    tokenizer: Tokenizer

    @classmethod
    def load(cls, reference: str) -> "LocalTokens":
        """Of a folder with a tokenizer, or of a prepared model. Raise `UserError`."""
        try:
            folder = Path(reference) if Path(reference).is_dir() else prepared_dir(reference)
            return cls(reference, Tokenizer.load(folder))
        except ModelError as error:
            raise UserError(f"--tokenizer: {error}") from None

    async def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    async def count(self, api: Api, text: str) -> int:
        if api == "completions":
            return len(self.tokenizer.encode(text))
        try:
            return len(self.tokenizer.encode_chat(Chat([{"role": "user", "content": text}])))
        except ChatError as error:
            raise UserError(f"--tokenizer: {self.name}: {error}") from None


class _Tokens(msgspec.Struct):
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class ServedTokens:
    """``/tokenize`` as vLLM and MeshServe have it."""

    client: HttpClient
    model: str
    name: str

    async def is_there(self) -> bool:
        try:
            await self.encode("a")
        except UserError:
            return False
        return True

    async def encode(self, text: str) -> list[int]:
        return await self._tokens({"prompt": text, "add_special_tokens": False})

    async def count(self, api: Api, text: str) -> int:
        asked: dict[str, Any] = {"prompt": text}
        if api == "chat":
            asked = {"messages": [{"role": "user", "content": text}]}
        return len(await self._tokens(asked))

    async def _tokens(self, asked: dict[str, Any]) -> list[int]:
        try:
            answer = await fetch_json(self.client, "POST", "/tokenize", {"model": self.model, **asked})
            return msgspec.convert(answer, _Tokens).tokens
        except (HttpError, ValueError) as error:
            raise UserError(f"{self.name}/tokenize: {error}") from None
