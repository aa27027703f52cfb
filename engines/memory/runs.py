"""The full blocks of one sequence, as its block pool lets others find them."""

from array import array
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from engines.memory.block_digests import ROOT, Digest, packed


class Run:
    """The full blocks of one sequence that others can find, in order. ``tokens`` are the sequence's own, and grow.
    ``root``: of `engines.memory.block_digests.root_of`.

    Digests beyond the first are computed once another sequence begins alike: before that nobody can ask for them.
    """

    __slots__ = ("blocks", "digest", "is_alone", "num_named", "num_pending", "tokens", "used_at")

    def __init__(self, tokens: Sequence[int], root: Digest = ROOT) -> None:
        self.tokens = tokens
        self.blocks = array("I")
        self.digest = root  # of the last block that has one
        self.num_named = 0  # blocks whose digest is computed
        self.num_pending = 0  # the others, as far as they still hold what was published
        self.is_alone = False
        self.used_at = -inf  # when KV tiers were told of it last

    def close(self, num_tokens: int) -> None:
        """The sequence goes, or begins anew. Keep those of its first tokens whose digests may be asked for: they stay
        for as long as its blocks are cached, and are a tenth as large so.
        """
        self.tokens = packed(self.tokens)[:num_tokens] if self.is_alone else ()


class FoundBlock(NamedTuple):
    """A block that others can find from now on. ``number``: of its run's blocks, from 0."""

    digest: Digest
    run: Run
    number: int
