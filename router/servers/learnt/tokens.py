"""Asks a server for the tokens of a prompt, as vLLM's ``/tokenize`` tells them."""

import asyncio
from typing import Final

import aiohttp
import msgspec

from router.servers.forwarded_call import CallBody
from router.servers.http import read_bounded
from router.servers.stream.sse import BadStreamError

FIELDS: Final = (
    "messages",
    "prompt",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
)
DEADLINE_S: Final = 0.5  # the request waits for it: later, an estimate is as good
MAX_ANSWER: Final = 16 * 2**20  # bytes


class _Answer(msgspec.Struct):
    tokens: list[int]


def tokenize_body(body: CallBody, model: str) -> bytes:
    """Return what ``/tokenize`` is asked: of the call, all that its prompt is made of."""
    asked = {name: body.fields[name] for name in FIELDS if name in body.fields}
    return msgspec.json.encode({**asked, "model": msgspec.Raw(msgspec.json.encode(model))})


async def ask_tokens(session: aiohttp.ClientSession, url: str, data: bytes) -> list[int] | None:
    """Return the tokens; None: it does not tell them, or not in time."""
    headers = {"content-type": "application/json"}
    try:
        async with (
            asyncio.timeout(DEADLINE_S),
            session.post(f"{url}/tokenize", data=data, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                return None
            tokens = msgspec.json.decode(await read_bounded(answer, MAX_ANSWER), type=_Answer).tokens
            return [token & 0xFFFFFFFF for token in tokens] or None
    except (aiohttp.ClientError, BadStreamError, msgspec.DecodeError, TimeoutError, OSError, ValueError):
        return None
