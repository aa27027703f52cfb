"""Readers that stall: answers are made for them, and nobody takes them."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from bench.siege.answers import ANY_END, Answer, End
from bench.siege.attack import Family, attack
from bench.siege.ground import COMPLETIONS, Ground
from bench.siege.http import request

SMALL = 4096  # bytes that such a reader's kernel takes


async def stall(ground: Ground, count: int, fields: Mapping[str, Any], path: str = COMPLETIONS) -> list[Answer]:
    """Ask, and do not read."""
    body = json.dumps(ground.completion(fields)).encode()
    async with AsyncExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):
                line = await stack.enter_async_context(ground.line(receive_bytes=SMALL))
                await line.send(request(ground.port, path, body))
        await asyncio.sleep(ground.hold_s)
    return [Answer(End.HELD)] * count


@attack("stalled-streams", Family.READERS, right=ANY_END, load=16, fast=True)
async def stalled_streams(ground: Ground) -> Sequence[Answer]:
    tokens = min(400, ground.max_context // 4)
    return await stall(ground, 16, {"stream": True, "max_tokens": tokens, "ignore_eos": True, "logprobs": 20})


@attack("stalled-whole-answers", Family.READERS, right=ANY_END, load=32)
async def stalled_whole(ground: Ground) -> Sequence[Answer]:
    """Megabytes each, which wait in the gateway."""
    return await stall(ground, 4, {"n": 32, "max_tokens": 48, "ignore_eos": True, "logprobs": 20, "echo": True})


@attack("stalled-last-event", Family.READERS, right=ANY_END, load=16)
async def stalled_last_event(ground: Ground) -> Sequence[Answer]:
    """The answer ends before the buffers are full: only its last words wait."""
    return await stall(ground, 24, {"stream": True, "n": 4, "max_tokens": 24, "ignore_eos": True, "logprobs": 20})


@attack("stalled-tokenize", Family.READERS, right=ANY_END, load=8)
async def stalled_tokenize(ground: Ground) -> Sequence[Answer]:
    prompt = "a " * (ground.max_context // 2 - 8)
    return await stall(ground, 64, {"prompt": prompt, "return_token_strs": True}, "/tokenize")


@attack("stalled-errors", Family.READERS, right=ANY_END)
async def stalled_errors(ground: Ground) -> Sequence[Answer]:
    """What is wrong is said at length, and not read."""
    return await stall(ground, 64, {"model": "x" * 100_000})
