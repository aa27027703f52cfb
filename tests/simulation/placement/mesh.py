"""A small simulated mesh whose placement matters: five services on four A100s, two at most on each.

All serve Llama 3 8B and answer questions about long documents in a few words, so that it is the same load whoever is
asked. One service gets most of it: it needs all engines, the others one each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench.simulated import MANY
from engines.costs.presets import load_preset
from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Scheduling,
    ServiceSpec,
    Slo,
    Topology,
)
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from router.placement.observe.traffic import Moments, ServiceTraffic
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest

NUM_ENGINES, NUM_SERVICES = 4, 5
SERVICES = tuple(f"s{number}" for number in range(NUM_SERVICES))
DOCUMENTS = (Moments(20_000, 6000), Moments(16, 8))  # tokens of prompts and answers
BUSY_SHARE = 0.6  # of all requests; the other services share the rest evenly
SLO = Slo(10.0, 1.0)
MOST_HELD = 4  # services on an engine, while those of a new plan are beside those of the old one: weights must fit
PRESET = load_preset("a100-llama3-8b-tp1")
KV_BYTES = PRESET.kv_memory_bytes - (MOST_HELD - 1) * PRESET.weight_bytes
PROFILE = SharedProfile(dict.fromkeys(SERVICES, PRESET), KV_BYTES, 1)
TIMING = Timing(heartbeat_s=1.0, lease_s=5.0)


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` of all services. ``busiest`` gets `BUSY_SHARE` of it; from ``shift_at_s`` on, ``next_busiest`` does."""

    rate: float
    span_s: float
    seed: int
    busiest: str = SERVICES[0]
    shift_at_s: float | None = None
    next_busiest: str = SERVICES[1]

    def rates(self, busiest: str) -> dict[str, float]:
        rest = (1 - BUSY_SHARE) / (NUM_SERVICES - 1)
        return {name: self.rate * (BUSY_SHARE if name == busiest else rest) for name in SERVICES}

    def trace(self) -> list[TraceRequest]:
        until_s = self.span_s if self.shift_at_s is None else self.shift_at_s
        requests = [*self._drawn(self.busiest, 0.0, until_s)]
        if self.shift_at_s is not None:
            requests += self._drawn(self.next_busiest, until_s, self.span_s)
        return sorted(requests, key=lambda request: request.at_s)

    def _drawn(self, busiest: str, from_s: float, until_s: float) -> list[TraceRequest]:
        return [
            TraceRequest(from_s + at_s, num_input, num_output, service=name)
            for name, rate in self.rates(busiest).items()
            for at_s, num_input, num_output in ServiceTraffic(rate, *DOCUMENTS).arrivals(
                until_s - from_s, Random(f"{self.seed}/{name}/{from_s}")
            )
        ]


def topology(held: Sequence[Sequence[str]], placement: PlacementSpec | None) -> Topology:
    """Engine ``n`` begins with the n-th services."""
    sizes: dict[str, Any] = {"block_size": 64, "max_running": 128, "max_waiting": MANY, "chunk_tokens": 2048}
    engines = tuple(
        EngineSpec(f"engine-{number}", Role.MULTIPLEX, tuple(services), scheduling=Scheduling.DB, **sizes)
        for number, services in enumerate(held)
    )
    return Topology(
        "placement",
        Path("placement"),
        tuple(ServiceSpec(name, "model", SLO) for name in SERVICES),
        engines,
        (GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY),),
        policy=PolicySpec("join_shortest_queue"),
        timing=TIMING,
        placement=placement,
    )
