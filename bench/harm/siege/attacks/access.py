"""Keys: wrong, malformed, enormous, and many."""

import asyncio
from collections.abc import Sequence
from functools import partial

from bench.harm.deployment import MODEL
from bench.harm.harm import TURNED_AWAY, Harm
from bench.harm.meshes import EXPIRED, HONEST, KEYED, LIMITED, RIVAL
from bench.harm.siege.attack import flood, shoot
from bench.harm.siege.ground import CHATS, COMPLETIONS, DETOKENIZE, TOKENIZE, Answer, Ground

NOTICED_S = 1.5  # until a gateway has looked at its file of keys again
ROUTES = (COMPLETIONS, CHATS, TOKENIZE, DETOKENIZE)
GREEDY = {"x-priority": "100", "x-slo-tpot-ms": "0.01", "x-slo-ttft-ms": "0.01"}


def tenants(ground: Ground) -> list[bytes]:
    """A name of a tenant with each request, by whom nobody trusts."""
    names = [ground.random.randbytes(16).hex() * 20 for _ in range(200)]
    headers = (
        {"x-gateway-inference-fairness-id": one, "x-forwarded-for": f"10.0.0.{hash(one) % 255}"} for one in names
    )
    return [ground.completion({"max_tokens": 1}, one) for one in headers]


def unkeyed(ground: Ground) -> list[bytes]:
    """On every route that costs something, with small and large bodies, and with keys that are nearly right."""
    bodies = ({"model": MODEL, "prompt": "a", "max_tokens": 1}, {"prompt": "a" * 4 * 10**6})
    posts = [ground.post(route, body) for route in ROUTES for body in bodies]
    wrong = {"authorization": ground.key(HONEST)["authorization"][:-1] + "~"}
    return [*posts, *(ground.completion({}, one) for one in (ground.key(EXPIRED), wrong))]


def limited(ground: Ground) -> list[bytes]:
    """More requests in a minute, and at a time, than it may send."""
    return [ground.completion({"max_tokens": 16}, ground.key(LIMITED))] * 100


def rival(ground: Ground) -> bytes:
    """With a key that has no limits."""
    return ground.completion({"n": 16, "max_tokens": 64, "ignore_eos": True}, ground.key(RIVAL))


def greedy_rivals(ground: Ground) -> list[bytes]:
    """The highest priority and the tightest promise, which its key does not allow."""
    return [ground.completion({"max_tokens": 32, "ignore_eos": True}, {**ground.key(RIVAL), **GREEDY})] * 16


async def garbled(ground: Ground) -> Sequence[Answer]:
    """The file breaks, grows, or goes away under the running mesh: those who had keys keep them."""
    path = ground.mesh.deployment.path.parent / "keys.json"
    whole = path.read_bytes()
    answers: list[Answer] = []
    try:
        for content in (b"", b"\xff" * 1000, b"[" * 100_000, whole[:-20]):
            path.write_bytes(content)
            await asyncio.sleep(NOTICED_S)
            answers.append(await ground.send(ground.completion({"max_tokens": 1}, ground.key(RIVAL))))
        path.unlink()
        await asyncio.sleep(NOTICED_S)
    finally:
        path.write_bytes(whole)
        path.chmod(0o600)
    return answers


_open = partial(Harm, "access")
_keyed = partial(Harm, "access", mesh=KEYED)
_away = partial(Harm, "access", mesh=KEYED, right=TURNED_AWAY)

ATTACKS = (
    _open("tenants-many", shoot(tenants, at_once=16), load=16),
    _away("no-key-or-expired", shoot(unkeyed)),
    _keyed("key-beyond-its-limits", shoot(limited, at_once=32)),
    _keyed("flood-of-a-rival", flood(200, rival), "Sheng et al., OSDI 2024", load=64),
    _keyed("priority-of-a-rival", shoot(greedy_rivals, at_once=16), load=16),
    _keyed("key-file-garbled", garbled),
)
