"""Says what a service asks of any way to draft, and which decodes may be given drafts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engines.costs.linear import decode_step_s
from engines.engine_request import EngineRequest
from engines.scheduling.batch import ChunkResult
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Share
from engines.scheduling.slack import tightest
from mesh.wire.status import DecodeCost


class SpeculationCounts(NamedTuple):
    """What became of drafts of all requests since the service was opened. ``num_checks``: decodes that had drafts."""

    num_checks: int
    num_drafted: int
    num_accepted: int

    def plus(self, num_drafted: int, num_accepted: int) -> "SpeculationCounts":
        """Return the counts with one check more."""
        return SpeculationCounts(self.num_checks + 1, self.num_drafted + num_drafted, self.num_accepted + num_accepted)


class Speculates(Protocol):
    """The speculation of one service."""

    counts: SpeculationCounts
    num_forced: int  # tokens that a grammar forces are wanted as drafts, so many of a request at most

    def drafted(
        self,
        shares: Sequence[Share],
        others: Sequence[EngineRequest],
        queue: ServiceQueue,
        cost: DecodeCost,
        now: float,
    ) -> Sequence[Share]:
        """Return the shares of a step, all decodes, with drafts where they pay; their blocks are held.

        ``others``: decodes that wait meanwhile. What the requests of ``queue`` grow into stays free.
        """

    def checked(self, share: Share, result: ChunkResult) -> None:
        """Note what became of a share's drafts. Call it before the tokens that came of them are looked at."""

    @property
    def holds_blocks(self) -> bool:
        """Say whether it holds blocks of its own, which requests may need. The two below matter only then."""

    def settle(self) -> None:
        """Give up blocks that are of no more use. Call it between steps."""

    def make_room(self) -> None:
        """Give up blocks that it holds for speed alone. Call it between steps."""


@dataclass(frozen=True, slots=True)
class DecodeLoad:
    """The decodes of a step before there are drafts. ``longest_s``: that no promise of those without drafts forbids."""

    number: int
    context: int  # tokens
    longest_s: float
    cost: DecodeCost

    @classmethod
    def of(
        cls,
        shares: Sequence[Share],
        drafting: Collection[int],
        others: Sequence[EngineRequest],
        cost: DecodeCost,
        now: float,
    ) -> "DecodeLoad":
        """Make that of ``shares``, of which those in ``drafting`` may have drafts. ``others`` wait meanwhile."""
        number, context = len(shares), sum([len(share.request.tokens) for share in shares])
        waiting = [share.request for index, share in enumerate(shares) if index not in drafting]
        alone_s = decode_step_s(cost, number, context)
        slack_s = tightest([*waiting, *others], now, alone_s).slack_s
        return cls(number, context, alone_s + max(0.0, slack_s), cost)

    def step_s(self, num_rows: int, further: int) -> float:
        """Return the seconds of the step with so many more rows, with so much context in all."""
        return decode_step_s(self.cost, self.number + num_rows, self.context + further)


def can_check(request: EngineRequest) -> bool:
    """Return whether it is here to stay, and somebody waits for it."""
    return request.transfer is None and not request.is_filler


def most_for(request: EngineRequest, most: int) -> int:
    """Return how many drafts may follow: one token more is sampled than drafts are right."""
    most = min(most, request.num_left_here - 1)
    return most if request.granted is None else min(most, request.granted - len(request.tokens) - 1)


def num_held_for(request: EngineRequest, count: int, queue: ServiceQueue) -> int:
    """Return how many of so many drafts its blocks have room for, of which more are held if others have what they grow
    into.
    """
    pool = queue.pool
    missing = pool.blocks_for(len(request.tokens) + count) - len(request.blocks)
    if missing > 0 and pool.can_allocate(missing + queue.growth_blocks):
        request.blocks += pool.allocate(missing)
    return min(count, len(request.blocks) * pool.block_size - len(request.tokens))
