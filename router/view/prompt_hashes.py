"""Names for the blocks of prompts that tell which prompts begin alike, and nothing else."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from mesh.prefix_names import NAME_BYTES
from router.history.records import PROMPT_BLOCK


def block_hashes(prompt: Sequence[int], salt: bytes) -> tuple[int, ...]:
    """One name a block of `PROMPT_BLOCK` tokens (the last one may be shorter), chained over the blocks before it.

    Without the ``salt``, up to 64 bytes, nobody can tell whether a guessed prompt was there.
    """
    names = []
    digest = b""
    for start in range(0, len(prompt), PROMPT_BLOCK):
        block = array("I", prompt[start : start + PROMPT_BLOCK]).tobytes()
        digest = blake2b(digest + block, digest_size=32, key=salt).digest()
        names.append(int.from_bytes(digest[:NAME_BYTES]))
    return tuple(names)
