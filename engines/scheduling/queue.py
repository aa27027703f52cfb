"""The requests of one service on an engine, by where they stand, and the memory that they hold and may grow into."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from engines.engine_request import EngineRequest
from engines.filling.fillers import Fillers
from engines.memory.block_pool import BlockPool
from engines.scheduling.steady import SteadyBatch

PARTS_OF_SLICES = (1, 2, 4, 8)  # a slice is this part of a whole one: the longest for which there is memory


@dataclass(slots=True)
class ServiceQueue:
    """The sequences of one service on this engine and the pool that holds their KV."""

    service: str
    pool: BlockPool
    unreserved: list[EngineRequest] = field(
        default_factory=list
    )  # wait until another engine has reserved blocks for them
    without_adapter: list[EngineRequest] = field(default_factory=list)  # wait until it is loaded, and hold no blocks
    waiting: list[EngineRequest] = field(default_factory=list)  # hold no blocks
    running: list[EngineRequest] = field(default_factory=list)  # hold blocks; oldest admission first
    pinned: set[EngineRequest] = field(default_factory=set)  # a transfer reads their blocks: not to be preempted
    offloading: list[EngineRequest] = field(default_factory=list)  # their KV is on its way to host memory
    offloaded: list[EngineRequest] = field(default_factory=list)  # hold no blocks: it is there
    restoring: list[EngineRequest] = field(default_factory=list)  # it is on its way back to blocks that they hold
    loading: list[EngineRequest] = field(default_factory=list)  # what KV tiers hold comes to blocks that they hold
    slice_tokens: int | None = None  # as in `Limits`
    is_claimed: bool = False  # the next memory is that of a offloaded sequence
    fillers: Fillers = field(default_factory=Fillers)  # beside all of the above, which count for others
    steady: SteadyBatch | None = None  # the first ones of ``running``, while their steps repeat: not all is booked

    @property
    def num_unbooked(self) -> int:
        """Tokens of steady decodes that are not in their sequences yet."""
        return 0 if self.steady is None else self.steady.num_unbooked

    @property
    def num_taken(self) -> int:
        """Sequence that run, or will at once."""
        return len(self.running) + len(self.restoring) + len(self.loading)

    @property
    def num_away(self) -> int:
        return len(self.offloading) + len(self.offloaded) + len(self.restoring)

    @property
    def num_coming(self) -> int:
        """Requests whose KV is to come, or on its way: they will run without having been waiting."""
        return len(self.offloading) + len(self.offloaded) + len(self.restoring) + len(self.loading)

    @property
    def is_empty(self) -> bool:
        """Return whether none of its requests runs, can begin, or has KV that is elsewhere."""
        return not (self.running or self.waiting or self.loading or self.offloading or self.offloaded or self.restoring)

    @property
    def away(self) -> list[EngineRequest]:
        """Sequence whose KV is in host memory, or on its way there or back."""
        return [*self.offloading, *self.offloaded, *self.restoring]

    @property
    def ranked(self) -> list[EngineRequest]:
        """Return those that a discipline knows: they can be computed, or will be when their KV has come."""
        here = *self.waiting, *self.loading, *self.running, *self.away
        return [request for request in here if not request.is_over]

    @property
    def growth_blocks(self) -> int:
        """Blocks for what runs to grow into: one each, or, with slices, what each is granted and does not hold."""
        if self.slice_tokens is None:
            return len(self.running) + len(self.loading)
        blocks_for = self.pool.blocks_for
        return sum(
            [
                max(0, blocks_for(request.granted) - len(request.blocks))
                for request in chain(self.running, self.restoring, self.loading)
                if request.granted is not None
            ]
        )

    def slice_end(self, request: EngineRequest) -> int | None:
        """Return how many tokens it may have when a slice ends that begins now; None: there are no slices."""
        if self.slice_tokens is None:
            return None
        num_new = 1 if request.decode_engine is not None else min(self.slice_tokens, request.num_left_here)
        return min(len(request.tokens) + num_new, self.pool.num_blocks * self.pool.block_size)

    def slice_ends(self, request: EngineRequest) -> Sequence[int | None]:
        """Return what `slice_end` says, and the ends of shorter slices, each half as long, for when memory is short.

        There is one at least: a request that fills the memory has no tokens left, and ends with its next one.
        """
        longest, num_tokens = self.slice_end(request), len(request.tokens)
        if longest is None or longest <= num_tokens:
            return (longest,)
        return [num_tokens + (longest - num_tokens) // part for part in PARTS_OF_SLICES if longest - num_tokens >= part]

    def fitting_end(
        self, request: EngineRequest, has_room: Callable[[int | None], bool], headroom: int
    ) -> tuple[bool, int | None]:
        """Return whether a waiting request has room, and the end of the longest slice for which it has. If there is
        none, others give up for the shortest one what they do not hold yet. ``headroom``: blocks that stay free for
        others.
        """
        ends = self.slice_ends(request)
        for end in ends:
            if has_room(end):
                return True, end
        if ends[-1] is None:
            return False, None
        self._take_back(self.pool.blocks_for(ends[-1]) - len(request.blocks) + headroom - self.pool.num_free)
        return has_room(ends[-1]), ends[-1]

    def _take_back(self, num_blocks: int) -> None:
        """Take back so many blocks that were granted and are not held yet; none if there are not as many. The newest
        lose them first, and each keeps the shortest slice.
        """
        spare = [(request, self._spare_blocks(request)) for request in reversed(self.running)]
        if sum([number for _, number in spare]) < num_blocks:
            return
        for request, number in spare:
            taken = min(num_blocks, number)
            if taken > 0 and request.granted is not None:
                request.granted = (self.pool.blocks_for(request.granted) - taken) * self.pool.block_size
                num_blocks -= taken

    def _spare_blocks(self, request: EngineRequest) -> int:
        """Blocks that it was granted beyond those that it holds, and beyond the shortest slice."""
        shortest = self.slice_ends(request)[-1]
        if request.granted is None or shortest is None:
            return 0
        kept = max(self.pool.blocks_for(shortest), len(request.blocks))
        return max(0, self.pool.blocks_for(request.granted) - kept)

    def book(self) -> None:
        """Let them be there: the lengths of single ones matter."""
        if self.steady is not None:
            self.steady.book()

    def decoding(self) -> list[EngineRequest]:
        """Return the requests that decode: `EngineRequest.is_decoding`, spelt out, as it is asked for all that runs in
        every iteration.
        """
        return [
            one
            for one in self.running
            if (num_tokens := len(one.tokens)) - one.num_computed == 1 and num_tokens > len(one.spec.prompt)
        ]

    def prompts(self) -> Iterator[EngineRequest]:
        """Return what does not decode and could be computed now: what has begun, then what waits."""
        return chain((request for request in self.running if not request.is_decoding), self.waiting)

    def remove(self, request: EngineRequest) -> None:
        """Take a sequence out, wherever it stands. Its blocks stay its own."""
        if request.is_filler:
            self.fillers.remove(request)
        for place in (self.unreserved, self.without_adapter, self.waiting, self.loading, self.running, self.offloaded):
            if request in place:
                place.remove(request)

    def can_have(self, num_blocks: int) -> bool:
        """Return whether so many blocks can be allocated now. Fillers give way for that."""
        if not self.pool.can_allocate(num_blocks) and self.fillers.running:
            self.fillers.give_way(self.pool, lambda: self.pool.can_allocate(num_blocks))
        return self.pool.can_allocate(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that are free, or would be if fillers gave way."""
        pool, fillers = self.pool, self.fillers
        return min(pool.num_blocks, pool.num_free + fillers.num_blocks(pool)) if fillers.running else pool.num_free

    @property
    def not_begun(self) -> tuple[EngineRequest, ...]:
        """Return those that hold no blocks and have not begun, or have lost what they had."""
        return (*self.waiting, *self.without_adapter, *self.unreserved)

    @property
    def num_not_begun(self) -> int:
        return len(self.waiting) + len(self.without_adapter) + len(self.unreserved)

    def preempt(self, request: EngineRequest) -> None:
        """One that runs loses its blocks and waits again."""
        self.running.remove(request)
        request.release_blocks(self.pool)
        request.has_asked_tiers, request.brought = False, None
        self.waiting.append(request)

    def check_invariants(self, owned: Mapping[str, EngineRequest]) -> None:
        """Raise AssertionError unless each request stands in one place, and only those hold blocks that may."""
        places = [*self.not_begun, *self.loading, *self.running, *self.away, *self.fillers.all()]
        assert len(set(places)) == len(places), "a request stands in two places"
        assert all(owned.get(request.id) is request for request in self.running), "an unowned request runs"
        blockless = *self.not_begun, *self.offloaded, *self.fillers.waiting
        assert not any(request.blocks for request in blockless), "a waiting request holds"
        assert all(owned.get(request.id) is request for request in self.offloaded), "an unowned request is offloaded"
