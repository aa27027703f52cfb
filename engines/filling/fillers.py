"""The requests without a promise on an engine, of one service: they fill what promises leave.

They stand beside the service's queue, not in it. So nothing that is told, predicted or decided for requests with
promises counts them, and whoever wants their memory takes it, as what is only cached.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool


@dataclass(slots=True)
class Fillers:
    """The fillers of one service."""

    waiting: list[EngineRequest] = field(default_factory=list)  # hold no blocks
    running: list[EngineRequest] = field(default_factory=list)  # hold blocks; oldest admission first
    computing: tuple[EngineRequest, ...] = ()  # those of them whose blocks the running step writes
    num_preempted: int = 0
    _counted: tuple[tuple[int, int], int] = ((-1, -1), 0)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    def __bool__(self) -> bool:
        return bool(self.waiting or self.running)

    def all(self) -> list[EngineRequest]:
        """Return them in the order in which they go on."""
        return [*self.running, *self.waiting]

    def remove(self, request: EngineRequest) -> None:
        """Take one out, wherever it stands. Its blocks stay its own."""
        for place in (self.waiting, self.running):
            if request in place:
                place.remove(request)

    def num_blocks(self, pool: BlockPool) -> int:
        """Return how many blocks would be free if all of them gave way, but for prefixes that they share.

        Statuses ask several times while nothing changes.
        """
        if not self.running:
            return 0
        key = pool.num_free, len(self.running)
        if key != self._counted[0]:
            self._counted = key, sum([pool.num_sole(one.blocks) for one in self.running])
        return self._counted[1]

    def give_way(self, pool: BlockPool, is_enough: Callable[[], bool]) -> None:
        """Let them lose their blocks, the latest first, until that is enough. What runs in this moment stays."""
        for request in reversed(tuple(self.running)):
            if is_enough():
                return
            if request not in self.computing:
                self.running.remove(request)
                request.release_blocks(pool)
                self.waiting.insert(0, request)
                self.num_preempted += 1
