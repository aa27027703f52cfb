"""Floods: much of what is allowed, from one address and from several."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from bench.siege.answers import ANY_END, LIKE_ANYONE, Answer, End, answer_of
from bench.siege.attack import Family, attack
from bench.siege.attacks.http_bodies import PEERS
from bench.siege.ground import ATTACKER, COMPLETIONS, Ground
from bench.siege.http import exchange, request


async def flood(
    ground: Ground,
    count: int,
    body: bytes,
    peers: Sequence[str],
    *,
    at_once: int = 256,
    headers: Mapping[str, str] | None = None,
) -> list[Answer]:
    """As many as there is time for; who is still waiting at the end goes away, as clients do."""
    turns = asyncio.Semaphore(at_once)
    data = request(ground.port, COMPLETIONS, body, headers)

    async def one(number: int) -> Answer:
        async with turns:
            reply = await exchange(ground.port, data, ground.hold_s, peers[number % len(peers)])
            answer = answer_of(reply)
            return Answer(End.CUT) if answer.end is End.HELD else answer

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    done, left = await asyncio.wait(tasks, timeout=ground.patience_s)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return [task.result() for task in done]


@attack("flood-n-128", Family.FLOODS, load=64, fast=True)
async def flood_n(ground: Ground) -> Sequence[Answer]:
    """Each asks for 128 choices."""
    body = json.dumps(ground.completion({"n": 128, "max_tokens": 16, "ignore_eos": True})).encode()
    return await flood(ground, 24, body, (ATTACKER,))


@attack("flood-short", Family.FLOODS, load=64)
async def flood_short(ground: Ground) -> Sequence[Answer]:
    body = json.dumps(ground.completion({"max_tokens": 8})).encode()
    return await flood(ground, 1500, body, (ATTACKER,))


@attack("flood-from-many", Family.FLOODS, load=64)
async def flood_from_many(ground: Ground) -> Sequence[Answer]:
    body = json.dumps(ground.completion({"max_tokens": 8})).encode()
    return await flood(ground, 1500, body, PEERS)


@attack("flood-long-prompts", Family.FLOODS, load=32)
async def flood_long(ground: Ground) -> Sequence[Answer]:
    words = " ".join(str(ground.random.randrange(10**4)) for _ in range(ground.max_context // 8))
    body = json.dumps(ground.completion({"prompt": words, "max_tokens": 4})).encode()
    return await flood(ground, 200, body, PEERS[:2])


@attack("flood-long-answers", Family.FLOODS, load=64)
async def flood_answers(ground: Ground) -> Sequence[Answer]:
    fields = {"max_tokens": ground.max_context // 2, "stream": True, "ignore_eos": True}
    return await flood(ground, 128, json.dumps(ground.completion(fields)).encode(), (ATTACKER,))


@attack("flood-bad-requests", Family.FLOODS, load=16, right=LIKE_ANYONE)
async def flood_bad(ground: Ground) -> Sequence[Answer]:
    """Each is wrong, and saying so costs something."""
    return await flood(ground, 2000, b'{"prompt": [1, "a"], "temperature": "hot", "n": 1e99}', (ATTACKER,), at_once=64)


@attack("flood-large-bodies", Family.FLOODS, load=16)
async def flood_bodies(ground: Ground) -> Sequence[Answer]:
    """Many bodies of 4 MiB at a time: their sum is what counts."""
    body = json.dumps(ground.completion({"prompt": "a" * (4 * 2**20 - 200)})).encode()
    return await flood(ground, 96, body, PEERS, at_once=48)


@attack("flood-connections", Family.FLOODS, right=ANY_END, load=16)
async def flood_connections(ground: Ground) -> Sequence[Answer]:
    """Opened and closed as fast as they go."""
    turns = asyncio.Semaphore(64)

    async def touch(number: int) -> Answer:
        async with turns:
            await exchange(ground.port, b"", 0.01, PEERS[number % len(PEERS)])
        return Answer(End.CUT)

    return list(await asyncio.gather(*(touch(number) for number in range(3000))))


@attack("flood-routes", Family.FLOODS, load=16)
async def flood_routes(ground: Ground) -> Sequence[Answer]:
    """Whatever needs no key and says much."""
    paths = ("/v1/models", "/health", "/metrics", "/openapi.json", "/mesh/requests", "/docs", "/nothing")
    turns = asyncio.Semaphore(32)

    async def one(path: str) -> Answer:
        async with turns:
            return await ground.send(request(ground.port, path, b"", method="GET"))

    return list(await asyncio.gather(*(one(path) for path in paths * 60)))
