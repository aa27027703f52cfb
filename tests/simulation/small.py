"""Small clusters of modelled engines: a 70B-like model on four GPUs an engine."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.costs.profiles import ServerTraits
from engines.costs.step_cost import StepCost
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

SERVICE = "large"
PREFILL = PrefillCost(0.015, 1.6e-4, 1e-9)
DECODE = DecodeCost(0.027, 1e-4, 5e-8)


@dataclass(frozen=True, slots=True)
class Profile:
    prefill: PrefillCost = PREFILL
    decode: DecodeCost = DECODE
    kv_bytes_per_token: int = 327_680
    kv_memory_bytes: int = 100 * 10**9
    num_devices: int = 4
    weight_bytes: int = 0
    weight_bytes_per_s: float = 7e9
    server: ServerTraits | None = None

    @property
    def cost(self) -> StepCost:
        return StepCost(self.prefill, self.decode)


def topology(
    roles: dict[str, Role], policy: str = "tropical", *, slo: Slo | None = None, num_gateways: int = 1, **engine: int
) -> Topology:
    limits = {"max_running": 128, "chunk_tokens": 4096} | engine
    return Topology(
        "small",
        Path("small.toml"),
        (ServiceSpec(SERVICE, "model", slo or Slo(2.0, 0.1)),),
        tuple(EngineSpec(name, role, (SERVICE,), **limits) for name, role in roles.items()),
        tuple(GatewaySpec(f"gateway-{index}") for index in range(num_gateways)),
        policy=PolicySpec(policy),
    )


def pair(policy: str = "tropical", **options: object) -> Topology:
    return topology({"prefill": Role.PREFILL, "decode": Role.MULTIPLEX}, policy, **options)


def simulation(
    what: Topology,
    *,
    seed: int = 0,
    noise: float = 0.0,
    profile: Profile | None = None,
    physics: Physics | None = None,
    coasts: bool | None = None,
    **options: object,
):
    """Engines coast where they may, which changes nothing but the time that a test takes."""
    profiles = {engine.id: profile or Profile() for engine in what.engines}
    physics = physics or Physics(noise=noise)
    if coasts is None:
        coasts = what.rescheduling is None
    return Simulation(what, profiles, seed=seed, physics=physics, slo=SloRule(), coasts=coasts, **options)


def run(what: Topology, trace: list[TraceRequest], **options: object) -> list[Record]:
    records: list[Record] = []
    simulation(what, **options).run(SERVICE, trace, records.append)
    return records


def assert_all_ended_once(sim: Simulation, records: Sequence[Record], trace: Sequence[TraceRequest]) -> None:
    """Each request has one record, finished ones have all their tokens, and engines hold nothing."""
    assert Counter(record.id for record in records) == Counter(f"r{number}" for number in range(len(trace)))
    for record in records:
        if record.outcome is Outcome.FINISHED:
            assert record.output_tokens == trace[int(record.id[1:])].num_output
    for engine in sim.engines.values():
        assert engine.core.is_idle
        engine.core.check_invariants()
