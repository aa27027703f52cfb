"""Keys: wrong, malformed, enormous, and many."""

import asyncio
from collections.abc import Sequence

from bench.siege.answers import LIKE_ANYONE, Answer
from bench.siege.attack import Family, attack
from bench.siege.ground import Ground

ODD = (
    "Bearer", "Bearer ", "bearer x", "Basic eDp5", "Bearer " + "a" * 6000, "Bearer \xff\xfe", "Bearer ms-x-" + "0" * 64,
    "Bearer a b c", "Bearer ms--", "Bearer " + "ms-" * 1000, "\x00",
)  # fmt: skip


@attack("keys-odd", Family.ACCESS, "CVE-2025-59425", right=LIKE_ANYONE, fast=True)
async def keys_odd(ground: Ground) -> Sequence[Answer]:
    return [await ground.complete({"max_tokens": 1}, {"authorization": one}) for one in ODD]


@attack("keys-guessed", Family.ACCESS, right=LIKE_ANYONE, load=16)
async def keys_guessed(ground: Ground) -> Sequence[Answer]:
    """A new one with each request, from one address."""
    turns = asyncio.Semaphore(32)

    async def one(number: int) -> Answer:
        async with turns:
            return await ground.complete({"max_tokens": 1}, {"authorization": f"Bearer ms-{number:x}-{'0' * 43}"})

    return list(await asyncio.gather(*map(one, range(600))))


@attack("tenants-many", Family.ACCESS, right=LIKE_ANYONE, load=16)
async def tenants_many(ground: Ground) -> Sequence[Answer]:
    """A name of a tenant with each request, by whom nobody trusts."""
    names = [ground.random.randbytes(16).hex() * 20 for _ in range(200)]
    turns = asyncio.Semaphore(16)

    async def one(name: str) -> Answer:
        async with turns:
            headers = {
                "x-gateway-inference-fairness-id": name,
                "x-forwarded-for": f"10.0.{len(name)}.{hash(name) % 255}",
            }
            return await ground.complete({"max_tokens": 1}, headers)

    return list(await asyncio.gather(*map(one, names)))
