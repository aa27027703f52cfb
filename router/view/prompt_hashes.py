"""Names for the blocks and the prefixes of prompts that tell which prompts begin alike, and nothing else."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from router.history.records import PROMPT_BLOCK

NUM_BYTES = 6  # of a name: an exact number in any JSON reader, and a million blocks hardly ever collide
PREFIX_STEP = 128  # tokens from one prefix that is followed to the next, within the first block
FINE_PREFIXES = PROMPT_BLOCK // PREFIX_STEP


def block_hashes(prompt: Sequence[int], salt: bytes) -> tuple[int, ...]:
    """One name a block of `PROMPT_BLOCK` tokens (the last one may be shorter), chained over the blocks before it.

    Without the ``salt``, up to 64 bytes, nobody can tell whether a guessed prompt was there.
    """
    names = []
    digest = b""
    for start in range(0, len(prompt), PROMPT_BLOCK):
        block = array("I", prompt[start : start + PROMPT_BLOCK]).tobytes()
        digest = blake2b(digest + block, digest_size=32, key=salt).digest()
        names.append(int.from_bytes(digest[:NUM_BYTES]))
    return tuple(names)


def prefix_end(index: int) -> int:
    """Tokens of the prefix that has this index: 128, 256, 384, 512, and from there on 512 more each.

    Prompts that begin alike often share a short system prompt only. Behind it, what they share is long or nothing.
    """
    return PREFIX_STEP * (index + 1) if index < FINE_PREFIXES else PROMPT_BLOCK * (index + 2 - FINE_PREFIXES)


def prefix_names(prompt: Sequence[int], salt: bytes = b"") -> tuple[int, ...]:
    """One name a prefix of the prompt, shortest first, for use within this process. ``salt``: of any length."""
    key = blake2b(salt, digest_size=16).digest() if salt else b""
    names = []
    digest, start, end = b"", 0, prefix_end(0)
    while end <= len(prompt):
        digest = blake2b(digest + array("I", prompt[start:end]).tobytes(), digest_size=32, key=key).digest()
        names.append(int.from_bytes(digest[:NUM_BYTES]))
        start, end = end, prefix_end(len(names))
    return tuple(names)
