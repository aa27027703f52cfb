"""Chain digests: the identity of a full KV block is a hash of its tokens and of all before them."""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b

Digest = bytes
ROOT: Digest = b""  # of prefixes that nothing but their tokens tells apart


def chain(parent: Digest, tokens: Sequence[int]) -> Digest:
    """Identity of a full block: its tokens and everything before them."""
    return blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


def packed(tokens: Sequence[int]) -> "array[int]":
    """Return the same tokens in as little memory as may be: a byte each where that is enough, else four."""
    try:
        return array("B", bytes(tokens))  # several times as fast as without `bytes`
    except ValueError:
        return array("I", tokens)


def root_of(salt: bytes) -> Digest:
    """Where the chains of prefixes begin that are not to be found without this ``salt``; empty: `ROOT`."""
    return blake2b(salt, digest_size=16).digest() if salt else ROOT


def digests_of(tokens: Sequence[int], num_tokens: int, block_size: int, salt: bytes) -> Iterator[Digest]:
    """The identities of the full blocks of the first ``num_tokens``, in order."""
    digest = root_of(salt)
    for start in range(0, num_tokens - block_size + 1, block_size):
        digest = chain(digest, tokens[start : start + block_size])
        yield digest
