"""Counts the tokens of prompts for servers as the servers do, where the gateway has their tokenizer.

Nothing of what clients get depends on it: the server renders and tokenises for itself. With it, lengths and predictions
are exact, and prefixes are told by their tokens, as servers' KV events name them. What it cannot take is estimated
(`router.api.forward.pseudo_tokens`), and the server says what is wrong with it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from engines.models.errors import ModelError
from engines.models.text.chat_template import Chat, ChatError
from engines.models.text.tokenizer import Tokenizer
from mesh.errors import UserError
from router.servers.forwarded_call import CHAT, COMPLETIONS

FILES: Final = ("*.json", "*.jinja", "tokenizer*")  # of a repository that make a tokenizer
HUB: Final = "hf:"
MOST_IDS: Final = 2**20  # of a prompt that the client sends as token ids
LONG: Final = 8192  # bytes of a body whose prompt is tokenised beside the event loop

_ANY: Final = msgspec.json.Decoder()


class PromptTokenizer:
    """The tokenizer and the chat template of one service."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, service: str, reference: str) -> "PromptTokenizer":
        """Read it from a folder, or from a repository of the Hugging Face hub (``hf:org/name``). Raise `UserError` if
        there is none.
        """
        try:
            folder = _from_hub(reference.removeprefix(HUB)) if reference.startswith(HUB) else Path(reference)
            return cls(Tokenizer.load(folder))
        except (ModelError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"services.{service}.tokenizer: {reference} has no tokenizer to read: {reason}") from None

    def prompt(self, path: str, fields: Mapping[str, Raw]) -> list[int] | None:
        """Return the tokens of a call's prompt; None: it is not one that can be told here."""
        try:
            if path == CHAT:
                return self._chat(fields)
            return self._completion(_ANY.decode(fields["prompt"])) if path == COMPLETIONS else None
        except (AttributeError, KeyError, TypeError, ValueError, ChatError, RecursionError):
            return None

    def _chat(self, fields: Mapping[str, Raw]) -> list[int] | None:
        known = {
            name: _ANY.decode(fields[name]) for name in ("messages", "tools", "chat_template_kwargs") if name in fields
        }
        if "chat_template" in fields:
            return None
        generates = fields.get("add_generation_prompt")
        return self._tokenizer.encode_chat(
            Chat(
                known["messages"],
                tools=known.get("tools"),
                add_generation_prompt=generates is None or bytes(generates) != b"false",
                parameters=known.get("chat_template_kwargs") or {},
            )
        )

    def _completion(self, prompt: Any) -> list[int] | None:
        """Several prompts are one long one: they are computed together."""
        if isinstance(prompt, str):
            return self._tokenizer.encode(prompt)
        if not isinstance(prompt, list):
            return None
        tokens: list[int] = []
        for item in prompt:
            match item:
                case int():
                    tokens.append(item)
                case str():
                    tokens += self._tokenizer.encode(item)
                case list():
                    tokens += [token for token in item if isinstance(token, int)]
        return [token & 0xFFFFFFFF for token in tokens[:MOST_IDS]]


def _from_hub(name: str) -> Path:
    """Raise OSError or ValueError if it cannot be had."""
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(FILES)))
