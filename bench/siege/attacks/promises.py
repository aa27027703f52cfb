"""Promises and priorities as weapons: headers that ask for more than is anybody's due."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from bench.siege.answers import LIKE_ANYONE, Answer
from bench.siege.attack import Family, attack
from bench.siege.ground import COMPLETIONS, Ground

TOKENS = 48
NUM = 8


async def _asked_with(ground: Ground, headers: Mapping[str, str], count: int = NUM) -> list[Answer]:
    body = json.dumps(ground.completion({"max_tokens": TOKENS, "ignore_eos": True})).encode()
    return list(await asyncio.gather(*(ground.post(COMPLETIONS, body, headers) for _ in range(count))))


@attack("promise-hopeless-tpot", Family.PROMISES, load=NUM, fast=True)
async def hopeless_tpot(ground: Ground) -> Sequence[Answer]:
    """No engine can keep it: it must not close engines for others."""
    return await _asked_with(ground, {"x-slo-tpot-ms": "0.001"})


@attack("promise-hopeless-ttft", Family.PROMISES, load=NUM)
async def hopeless_ttft(ground: Ground) -> Sequence[Answer]:
    return await _asked_with(ground, {"x-slo-ttft-ms": "0.0001"})


@attack("promise-of-an-hour", Family.PROMISES, load=4 * NUM)
async def promise_of_an_hour(ground: Ground) -> Sequence[Answer]:
    """Requests that may wait for ever."""
    return await _asked_with(ground, {"x-slo-ttft-ms": "3600000", "x-slo-tpot-ms": "3600000"}, 4 * NUM)


@attack("priority-highest", Family.PROMISES, load=NUM, fast=True)
async def priority_highest(ground: Ground) -> Sequence[Answer]:
    return await _asked_with(ground, {"x-priority": "100"})


@attack("priority-highest-long", Family.PROMISES, load=NUM)
async def priority_long(ground: Ground) -> Sequence[Answer]:
    """Long prompts that go first."""
    fields = {"prompt": "word " * (ground.max_context // 8), "max_tokens": 8}
    return list(await asyncio.gather(*(ground.complete(fields, {"x-priority": "100"}) for _ in range(NUM))))


@attack("promise-headers-odd", Family.PROMISES, right=LIKE_ANYONE)
async def headers_odd(ground: Ground) -> Sequence[Answer]:
    values = ("nan", "inf", "-inf", "-1", "0", "-0", "1e-320", "1e400", "1_0", "٣", "", " ", "0x10", "1" * 4000)
    names = ("x-slo-ttft-ms", "x-slo-tpot-ms", "x-priority")
    shots = [
        ground.complete({"max_tokens": 1}, {name: value.encode().decode("latin-1")})
        for name in names
        for value in values
    ]
    return [await shot for shot in shots]


@attack("request-ids-odd", Family.PROMISES)
async def request_ids_odd(ground: Ground) -> Sequence[Answer]:
    """The same for many at once, and such as break logs."""
    same = [ground.complete({"max_tokens": 2}, {"x-request-id": "the-same"}) for _ in range(16)]
    odd = ["../../x", "a" * 4000, "\x1b[2J", "%s%n", "a b", ""]
    others = [ground.complete({"max_tokens": 1}, {"x-request-id": one}) for one in odd]
    return list(await asyncio.gather(*same, *others))
