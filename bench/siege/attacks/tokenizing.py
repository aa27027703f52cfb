"""The routes that tokenise: as much work as a prompt, and no engine that says no."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from bench.siege.answers import Answer
from bench.siege.attack import Family, attack
from bench.siege.attacks.prompts import HARD, MOST
from bench.siege.ground import DETOKENIZE, TOKENIZE, Ground


@attack("tokenize-strings-4-mib", Family.TOKENIZE, load=4, fast=True)
async def tokenize_strings(ground: Ground) -> Sequence[Answer]:
    """Ten at a time, each of which would answer with one text for each token."""
    body = {"model": ground.model, "prompt": "a b " * (MOST // 4), "return_token_strs": True}
    return list(await asyncio.gather(*(ground.post(TOKENIZE, body) for _ in range(10))))


@attack("tokenize-hard-texts", Family.TOKENIZE, load=4)
async def tokenize_hard(ground: Ground) -> Sequence[Answer]:
    bodies = [json.dumps({"model": ground.model, "prompt": text()}).encode()[: 4 * 2**20] for text in HARD.values()]
    return list(await asyncio.gather(*(ground.post(TOKENIZE, body) for body in bodies)))


@attack("tokenize-just-below", Family.TOKENIZE, load=8)
async def tokenize_just_below(ground: Ground) -> Sequence[Answer]:
    """As large as is allowed, again and again."""
    body = {"model": ground.model, "prompt": "a " * (ground.max_context // 2 - 8), "return_token_strs": True}
    return list(await asyncio.gather(*(ground.post(TOKENIZE, body) for _ in range(64))))


@attack("detokenize-many", Family.TOKENIZE, load=4, fast=True)
async def detokenize_many(ground: Ground) -> Sequence[Answer]:
    body = json.dumps({"model": ground.model, "tokens": [1] * (MOST // 3)}).encode()
    return list(await asyncio.gather(*(ground.post(DETOKENIZE, body) for _ in range(6))))


@attack("detokenize-odd", Family.TOKENIZE)
async def detokenize_odd(ground: Ground) -> Sequence[Answer]:
    odd: Sequence[object] = ([-1], [2**31], [2**63], [10**50], [1.5], ["1"], [None], [[]], {}, "abc", [True], [])
    return [await ground.post(DETOKENIZE, {"model": ground.model, "tokens": one}) for one in odd]


@attack("tokenize-odd", Family.TOKENIZE, "GHSA-69j4-grxj-j64p")
async def tokenize_odd(ground: Ground) -> Sequence[Answer]:
    deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    both = {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}
    odd: Sequence[Mapping[str, object]] = (
        {},
        both,
        {"prompt": "\ud800"},
        {"prompt": "a", "model": "nobody"},
        {"prompt": "a", "model": "../../etc/passwd"},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"tokenize": True}},
    )
    return [await ground.post(TOKENIZE, deep), *[await ground.post(TOKENIZE, one) for one in odd]]
