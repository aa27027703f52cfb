"""Offers of KV tiers and of other engines to a request, and the loads and pulls that it waits for."""

from dataclasses import dataclass

from engines.engine_request import EngineRequest
from engines.memory.block_digests import Digest
from engines.scheduling.service import Service


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be had of a request's prefix beyond its blocks, in predicted seconds, beside those of computing it.
    ``peer``: the engine that has it; None: tiers of this host.
    """

    digests: list[Digest]
    load_s: float
    compute_s: float
    peer: str | None = None

    @property
    def saved_s(self) -> float:
        return self.compute_s - self.load_s


NOTHING = Offer([], 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Load:
    """One under way. ``first``: the block of the request that comes first; ``load_s``: predicted; ``peer`` and
    ``pull``: the engine that it comes from and the id of that, if it does not come from tiers.
    """

    service: Service
    request: EngineRequest
    first: int
    num_blocks: int
    load_s: float
    began_at: float
    stops_at: float
    peer: str | None = None
    pull: str | None = None
