"""Names for the prefixes of prompts: two prompts share one exactly if they begin alike up to its end.

Gateways name what they send, and engines what they hold.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

NAME_BYTES: Final = 6  # an exact number in any JSON reader, and a million prefixes hardly ever collide
PREFIX_STEP: Final = 128  # tokens from one prefix that is followed to the next, at first
NUM_FINE: Final = 4  # prefixes that end so close to each other
LONG_STEP: Final = NUM_FINE * PREFIX_STEP  # tokens from one to the next behind them


def prefix_end(index: int) -> int:
    """Tokens of the prefix that has this index: 128, 256, 384, 512, and from there on 512 more each.

    Prompts that begin alike often share a short system prompt only. Behind it, what they share is long or nothing.
    """
    return PREFIX_STEP * (index + 1) if index < NUM_FINE else LONG_STEP * (index + 2 - NUM_FINE)


def prefix_names(prompt: Sequence[int], salt: bytes = b"") -> tuple[int, ...]:
    """One name a prefix of the prompt, shortest first, for use within one mesh. ``salt``: of any length."""
    key = blake2b(salt, digest_size=16).digest() if salt else b""
    names = []
    digest, start, end = b"", 0, prefix_end(0)
    while end <= len(prompt):
        digest = blake2b(digest + array("I", prompt[start:end]).tobytes(), digest_size=32, key=key).digest()
        names.append(int.from_bytes(digest[:NAME_BYTES]))
        start, end = end, prefix_end(len(names))
    return tuple(names)
