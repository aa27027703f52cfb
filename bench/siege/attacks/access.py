"""Keys: wrong, malformed, enormous, and many."""

import asyncio
import json
from collections.abc import Sequence

from bench.siege.answers import LIKE_ANYONE, TURNED_AWAY, Answer
from bench.siege.attack import KEYED, Family, attack
from bench.siege.attacks.floods import flood
from bench.siege.ground import (
    ATTACKER,
    CHATS,
    COMPLETIONS,
    DETOKENIZE,
    EXPIRED,
    HONEST,
    LIMITED,
    RIVAL,
    TOKENIZE,
    Ground,
)

NOTICED_S = 1.5  # until a gateway has looked at its file of keys again

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


# --- where keys are asked for -----------------------------------------------------------------------------------------


@attack("no-key", Family.ACCESS, wall=KEYED, right=TURNED_AWAY)
async def no_key(ground: Ground) -> Sequence[Answer]:
    """On every route that costs something, with bodies small and large."""
    routes = (COMPLETIONS, CHATS, TOKENIZE, DETOKENIZE)
    bodies = ({"model": ground.model, "prompt": "a", "max_tokens": 1}, {"prompt": "a" * 4 * 10**6})
    return [await ground.post(route, body) for route in routes for body in bodies]


@attack("keys-odd-asked-for", Family.ACCESS, "CVE-2025-59425", wall=KEYED, right=TURNED_AWAY)
async def keys_odd_asked_for(ground: Ground) -> Sequence[Answer]:
    nearly = ground.key(HONEST)["authorization"][:-1] + "~"
    return [await ground.complete({"max_tokens": 1}, {"authorization": one}) for one in (*ODD, nearly)]


@attack("keys-guessed-asked-for", Family.ACCESS, wall=KEYED, right=TURNED_AWAY, load=16)
async def keys_guessed_asked_for(ground: Ground) -> Sequence[Answer]:
    return await keys_guessed(ground)


@attack("key-expired", Family.ACCESS, wall=KEYED, right=TURNED_AWAY)
async def key_expired(ground: Ground) -> Sequence[Answer]:
    return [await ground.complete({}, ground.key(EXPIRED))]


@attack("key-beyond-its-limits", Family.ACCESS, wall=KEYED)
async def key_beyond_its_limits(ground: Ground) -> Sequence[Answer]:
    """More requests in a minute, and at a time, than it may send."""
    return await ground.all_of([{"max_tokens": 16}] * 100, ground.key(LIMITED), at_once=32)


@attack("flood-of-a-rival", Family.ACCESS, "Sheng et al., OSDI 2024", wall=KEYED, load=64)
async def flood_of_a_rival(ground: Ground) -> Sequence[Answer]:
    """Far more than its share, from an address of its own and with a key that has no limits."""
    fields = {"n": 16, "max_tokens": 64, "ignore_eos": True}
    body = json.dumps(ground.completion(fields)).encode()
    return await flood(ground, 200, body, (ATTACKER,), headers=ground.key(RIVAL))


@attack("priority-of-a-rival", Family.ACCESS, wall=KEYED, load=16)
async def priority_of_a_rival(ground: Ground) -> Sequence[Answer]:
    """The highest priority and the tightest promise, which its key does not allow."""
    headers = {**ground.key(RIVAL), "x-priority": "100", "x-slo-tpot-ms": "0.01", "x-slo-ttft-ms": "0.01"}
    return await ground.all_of([{"max_tokens": 32, "ignore_eos": True}] * 16, headers, at_once=16)


@attack("key-file-garbled", Family.ACCESS, wall=KEYED, right=LIKE_ANYONE)
async def key_file_garbled(ground: Ground) -> Sequence[Answer]:
    """It breaks, grows, or goes away under the running mesh: those who had keys keep them."""
    path = ground.mesh.deployment.path.parent / "keys.json"
    whole = path.read_bytes()
    answers: list[Answer] = []
    try:
        for content in (b"", b"\xff" * 1000, b"[" * 100_000, whole[:-20]):
            path.write_bytes(content)
            await asyncio.sleep(NOTICED_S)
            answers.append(await ground.complete({"max_tokens": 1}, ground.key(RIVAL)))
        path.unlink()
        await asyncio.sleep(NOTICED_S)
    finally:
        path.write_bytes(whole)
        path.chmod(0o600)
    return answers
