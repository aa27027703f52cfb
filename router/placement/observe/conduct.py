"""Describes how a mesh serves, whatever plan it has: plans are judged as if it went on so."""

from collections import Counter
from dataclasses import dataclass

from mesh.topology.schema import EngineSpec, PolicySpec, Rescheduling, Scheduling, Topology


@dataclass(frozen=True, slots=True)
class Conduct:
    """The policy, what each engine does, and for what reasons requests move.

    ``max_running``: requests in a batch. ``chunk_tokens``: of prompts in one iteration. ``slice_tokens``: of an answer,
    for which memory is granted at a time; None: any.
    """

    policy: PolicySpec
    scheduling: Scheduling = Scheduling.SLO
    max_running: int = 128
    chunk_tokens: int = 2048
    slice_tokens: int | None = None
    prefix_caching: bool = True
    rescheduling: Rescheduling | None = None

    @classmethod
    def of(cls, topology: Topology) -> "Conduct":
        """Return the topology's. Where engines differ, as most of them do."""
        ways = Counter(map(_way, topology.engines))
        if not ways:
            return cls(topology.policy, rescheduling=topology.rescheduling)
        scheduling, max_running, chunk_tokens, slice_tokens, caches = max(ways, key=lambda way: ways[way])
        return cls(topology.policy, scheduling, max_running, chunk_tokens, slice_tokens, caches, topology.rescheduling)

    @property
    def is_by_fewest_requests(self) -> bool:
        """Return whether each request goes to the engine that has the fewest, and stays there."""
        is_shortest = self.policy.name == "join_shortest_queue" and not self.policy.parameters
        return is_shortest and self.slice_tokens is None and self.rescheduling is None


def _way(engine: EngineSpec) -> tuple[Scheduling, int, int, int | None, bool]:
    return engine.scheduling, engine.max_running, engine.chunk_tokens, engine.slice_tokens, engine.prefix_caching
