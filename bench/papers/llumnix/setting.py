"""Llumnix's evaluation as values: engines, loads, contenders, and one run of them."""

from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from random import Random

from bench.simulated import make_fleet, modelled_engine
from engines.costs.profiles import EngineProfile, load_profile
from mesh.topology.schema import PolicySpec, Rescheduling, ServiceSpec, Slo, Topology, TransferSpec
from simulation.engines.physics import Physics
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths

SERVICE = "llama-7b"
PROFILE = "a10-llama2-7b-tp1"
KV_TOKENS = 13_616  # of an engine in the paper: what vLLM leaves of an A10
NUM_ENGINES = 16
STEP_TOKENS = 12_800  # prompt tokens of an iteration, as in the published artifact
PHYSICS = Physics(kv_bytes_per_s=8e9)  # the paper's network of 64 Gb/s
AT_ONCE = Slo(ttft_s=0.001, tpot_s=1000.0)  # first come, first served under any policy; nothing is late by TPOT


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    policy: str
    reschedules: bool = False
    num_neighbours: int = 32  # that exchange requests


ROUND_ROBIN = Contender("round robin", "round_robin")
INFAAS = Contender("infaas", "infaas")
DISPATCH = Contender("llumnix, dispatch only", "llumnix")
LLUMNIX = Contender("llumnix", "llumnix", reschedules=True)
CONTENDERS = (ROUND_ROBIN, INFAAS, DISPATCH, LLUMNIX)


def make_topology(contender: Contender, num_engines: int) -> Topology:
    names = (f"engine-{index:02}" for index in range(num_engines))
    return make_fleet(
        "llumnix",
        ServiceSpec(SERVICE, PROFILE, AT_ONCE),
        [modelled_engine(name, SERVICE, PROFILE, max_running=256, chunk_tokens=STEP_TOKENS) for name in names],
        PolicySpec(contender.policy),
        transfer=TransferSpec(migration_share=0.05),  # copies between GPUs take no core from decodes
        rescheduling=Rescheduling(neighbours=contender.num_neighbours) if contender.reschedules else None,
    )


def make_profile() -> EngineProfile:
    profile = load_profile(PROFILE)
    return replace(profile, kv_memory_bytes=KV_TOKENS * profile.kv_bytes_per_token)


@dataclass(frozen=True, slots=True)
class Case:
    """One run: so many requests with ``lengths`` (S-L, sharegpt, ...) arrive as a Poisson process."""

    lengths: str
    rate: float  # requests a second
    contender: Contender
    seed: int
    num_requests: int
    num_engines: int = NUM_ENGINES
    coasts: bool = False

    def requests(self) -> list[TraceRequest]:
        """Draw the requests, the same for every contender."""
        pool, random = described_lengths(PREFIX + self.lengths), Random(f"{self.seed}/trace")
        return list(islice(synthesize(pool, Arrivals(self.rate), inf, random), self.num_requests))
