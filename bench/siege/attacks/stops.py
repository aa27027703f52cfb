"""Stop strings: long, many, and nearly matching all the time."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.siege.answers import Answer
from bench.siege.attack import Family, attack, shots
from bench.siege.ground import Ground

ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "stop-long": ("", {"stop": "a" * 40_000, "max_tokens": 64, "ignore_eos": True}),
    "stop-4-mib": ("", {"stop": "ab" * 2_000_000}),
    "stop-list-long": ("", {"stop": ["x" * 100_000 + str(n) for n in range(16)], "max_tokens": 32}),
    "stop-list-many": ("", {"stop": [f"s{n}" for n in range(100_000)]}),
    "stop-nearly": ("", {"stop": ["a" * 255 + "b", "aa" * 120 + "c"], "prompt": "a" * 300, "max_tokens": 64}),
    "stop-odd": ("", {"stop": ["\x00", "\ud800", "\ufffd", "\U0010ffff", "\u202e"], "max_tokens": 32}),
    "stop-empty": ("", {"stop": ["", "a"]}),
    "stop-not-strings": ("", {"stop": [1, None, {}, []]}),
}
shots(Family.STOPS, ROWS, fast=("stop-long",))


@attack("stop-per-choice", Family.STOPS, load=16)
async def stop_per_choice(ground: Ground) -> Sequence[Answer]:
    """What is built for each choice is built 128 times."""
    return [await ground.complete({"n": 128, "stop": ["ab" * 500] * 16, "max_tokens": 4})]
