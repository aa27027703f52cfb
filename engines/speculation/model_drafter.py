"""Keeps what a draft model has of one request: blocks in its own pool, and how often its drafts were right.

Nothing of this moves with a request. An engine that takes it over begins anew, with what its draft model's prefix cache
has of it.
"""

from collections.abc import Sequence

from engines.memory.block_digests import root_of
from engines.memory.block_pool import BlockPool
from engines.memory.runs import Run
from engines.scheduling.batch import Drafting
from engines.speculation.acceptance import OWN_FADED, OWN_KEPT, OWN_WEIGHT, Acceptance

MOST_AT_ONCE = 512  # tokens that a draft model computes of a request in one step: others wait meanwhile


class ModelDrafter:
    """Drafts of one request, whose own list ``tokens`` is. ``salt``: of its prefixes; None: it takes none of others."""

    __slots__ = ("_salt", "_tokens", "acceptance", "blocks", "is_new", "num_computed", "num_lost", "pool")

    def __init__(self, tokens: Sequence[int], salt: bytes | None) -> None:
        self.acceptance = Acceptance(OWN_KEPT, OWN_FADED)
        self.pool: BlockPool | None = None  # that its blocks are of
        self.blocks: list[int] = []
        self.num_computed = 0  # tokens
        self.is_new = True  # nothing was drafted since it began to compute
        self.num_lost = 0  # times that its blocks went to others
        self._tokens = tokens
        self._salt = salt

    def __repr__(self) -> str:
        return f"<ModelDrafter {self.num_computed} of {len(self._tokens)} tokens in {len(self.blocks)} blocks>"

    @property
    def num_next(self) -> int:
        """Return how many tokens it computes of the request in the next step."""
        return min(len(self._tokens) - self.num_computed, MOST_AT_ONCE)

    def chance(self, expected: float) -> float:
        """Return how likely the next draft is right. ``expected``: of requests of its service."""
        return self.acceptance.chance(0, expected, OWN_WEIGHT)

    def drafting(self, service: str, pool: BlockPool, number: int) -> Drafting | None:
        """Return how to write so many tokens, with the blocks that takes; None: the pool has too few.

        Far behind, it only catches up.
        """
        if self.pool is not pool:
            self.release()
            self.pool = pool
            if self._salt is not None:
                self.blocks = pool.match(self._tokens, len(self._tokens) - 1, self._salt)
            self.num_computed = len(self.blocks) * pool.block_size
        end = self.num_computed + self.num_next
        number = number if end == len(self._tokens) else 0
        missing = pool.blocks_for(end + max(0, number - 1)) - len(self.blocks)
        if missing > 0:
            if not pool.can_allocate(missing):
                return None
            self.blocks += pool.allocate(missing)
        return Drafting(service, self.blocks, self.num_computed, end, number)

    def checked(self, drafting: Drafting, num_accepted: int) -> None:
        """Note what became of drafts. The KV of the last one was not computed, and that of wrong ones is void."""
        self.is_new = self.is_new and not drafting.number
        self.num_computed = drafting.end + max(0, min(num_accepted, drafting.number - 1))

    def lose(self) -> None:
        """Give its blocks to others that need them more."""
        self.num_lost += 1
        self.release()

    def release(self) -> None:
        """Let its blocks go; while nobody wants them, another request may find those that are full."""
        if (pool := self.pool) is not None:
            num_full = min(self.num_computed, len(self._tokens)) // pool.block_size
            run = None if self._salt is None else Run(self._tokens, root_of(self._salt))
            if run is not None:
                pool.publish(run, self.blocks, num_full)
            pool.release(self.blocks)
            if run is not None:
                run.close(len(run.blocks) * pool.block_size)
        self.pool, self.blocks, self.num_computed, self.is_new = None, [], 0, True
