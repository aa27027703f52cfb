"""Much of what is allowed: readers that stall, promises and priorities as weapons, and floods."""

import asyncio
from functools import partial

from bench.harm.harm import ANY_END, End, Harm
from bench.harm.http import exchange
from bench.harm.siege.attack import PEERS, flood, shoot, stall
from bench.harm.siege.ground import MAX_CONTEXT, TOKENIZE, Answer, Fields, Ground

EDGES = ("nan", "inf", "-inf", "-1", "0", "-0", "1e-320", "1e400", "1_0", "٣", "", " ", "0x10", "1" * 4000)
PROMISES = ("x-slo-ttft-ms", "x-slo-tpot-ms", "x-priority")
ODD_HEADERS = [{name: value.encode().decode("latin-1")} for name in PROMISES for value in EDGES]
WIDE: Fields = {"ignore_eos": True, "logprobs": 20}


def odd_headers(ground: Ground) -> list[bytes]:
    return [ground.completion({"max_tokens": 1}, headers) for headers in ODD_HEADERS]


def streams(ground: Ground) -> Fields:
    return {**WIDE, "stream": True, "max_tokens": min(400, MAX_CONTEXT // 4)}


def long_texts(ground: Ground) -> Fields:
    return {"prompt": "a " * (MAX_CONTEXT // 2 - 8), "return_token_strs": True}


def long_prompt(ground: Ground) -> bytes:
    words = " ".join(str(ground.random.randrange(10**4)) for _ in range(MAX_CONTEXT // 8))
    return ground.completion({"prompt": words, "max_tokens": 4})


def long_answer(ground: Ground) -> bytes:
    return ground.completion({"max_tokens": MAX_CONTEXT // 2, "stream": True, "ignore_eos": True})


def asking(fields: Fields) -> "partial[bytes]":
    return partial(Ground.completion, fields=fields)


def wrong(ground: Ground) -> bytes:
    """Saying why costs something."""
    return ground.post("/v1/completions", b'{"prompt": [1, "a"], "temperature": "hot", "n": 1e99}')


async def connections(ground: Ground) -> list[Answer]:
    """Opened and closed as fast as they go."""
    turns = asyncio.Semaphore(64)

    async def touch(number: int) -> Answer:
        async with turns:
            await exchange(ground.port, b"", 0.01, PEERS[number % len(PEERS)])
        return Answer(End.CUT)

    return await asyncio.gather(*map(touch, range(3000)))


_r = partial(Harm, "readers", right=ANY_END)
_f = partial(Harm, "floods", load=64)

ATTACKS = (
    _r("stalled-streams", stall(16, streams), load=16, in_short=True),
    _r("stalled-whole-answers", stall(4, lambda _: {**WIDE, "n": 32, "max_tokens": 48, "echo": True}), load=32),
    _r("stalled-last-event", stall(24, lambda _: {**WIDE, "stream": True, "n": 4, "max_tokens": 24}), load=16),
    _r("stalled-tokenize", stall(64, long_texts, TOKENIZE), load=8),
    _r("stalled-errors", stall(64, lambda _: {"model": "x" * 100_000})),
    Harm("promises", "promise-headers-odd", shoot(odd_headers)),
    _f("flood-n-128", flood(24, asking({"n": 128, "max_tokens": 16, "ignore_eos": True}))),
    _f("flood-short", flood(1500, asking({"max_tokens": 8}))),
    _f("flood-from-many", flood(1500, asking({"max_tokens": 8}), PEERS)),
    _f("flood-long-prompts", flood(200, long_prompt, PEERS[:2]), load=32),
    _f("flood-long-answers", flood(128, long_answer)),
    _f("flood-bad-requests", flood(2000, wrong, at_once=64), load=16),
    _f("flood-large-bodies", flood(96, asking({"prompt": "a" * (4 * 2**20 - 200)}), PEERS, at_once=48), load=16),
    _f("flood-connections", connections, right=ANY_END, load=16),
)
