"""An engine core on a virtual network, and what it shares with others of its host."""

from dataclasses import dataclass, field
from math import inf

from engines.core import EngineCore
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.scheduling.batch import Batch
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.service import Service
from engines.speculation.speculates import Speculates
from kvtransfer.tiers.tier import Tier
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import MemoryRef
from tests.engines.virtual_memory import SHAPE, SIGHT, HashingExecutor, VirtualMemory


class VirtualTier:
    """Blocks that the engines of a host share, by digest: a `TierIndex` with the content of blocks."""

    def __init__(self) -> None:
        self.contents: dict[bytes, dict[int, bytes]] = {}
        self.tiers = {Tier.HOST: 2**20}
        self.lacking: set[bytes] = set()  # of them, what a tier below does not have

    def find(self, digest: bytes) -> Tier | None:
        return Tier.HOST if digest in self.contents else None

    def is_in_all(self, digest: bytes) -> bool:
        return digest in self.contents and digest not in self.lacking


def make_service(
    service: str,
    engine: str,
    memory: VirtualMemory,
    tier: VirtualTier | None = None,
    speculation: Speculates | None = None,
    speed: float = 1.0,
) -> Service:
    """``speed``: at which the engine takes it to be computed."""
    return Service(
        ServiceQueue(service, memory.pool(service)),
        SHAPE,
        MemoryRef("here", engine, 1, engine),
        frozenset({0}),
        4096,
        LearntCost(StepCost(PrefillCost(0.0, 0.001 / speed), DecodeCost(0.005 / speed, 0.001 / speed))),
        weight_bytes=1,
        images=SIGHT,
        tiers=tier,
        speculation=speculation,
    )


@dataclass
class VirtualEngine:
    core: EngineCore
    executor: HashingExecutor
    memory: VirtualMemory
    dropped: list[str] = field(default_factory=list)
    weightless: set[str] = field(default_factory=set)  # paused services
    weight_memory: float = inf  # services whose weights it holds at a time
    kept: dict[int, list[dict[int, bytes]]] = field(default_factory=dict)  # offloaded blocks, by ticket
    batch: Batch | None = None
    dead: bool = False
    tier: VirtualTier | None = None
    stopped: set[int] = field(default_factory=set)  # tickets of loads
