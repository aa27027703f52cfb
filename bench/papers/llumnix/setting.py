"""Llumnix's evaluation as values: engines, loads, contenders, and one run of them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from bench.simulated import arriving, make_fleet, make_simulation, modelled_engines, serve
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile
from mesh.rules import PlacementMode
from mesh.topology.schema import (
    PlacementSpec,
    PolicySpec,
    Rescheduling,
    ScalingSpec,
    ServiceSpec,
    Slo,
    Topology,
    TransferSpec,
)
from router.history.records import Outcome
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths
from simulation.reports.steadiness import Steadiness, judge
from simulation.reports.summary import Distribution, stays_of

SERVICE = "llama-7b"
PROFILE = "a10-llama2-7b-tp1"
KV_TOKENS = 13_616  # of an engine in the paper: what vLLM leaves of an A10
NUM_ENGINES = 16
STEP_TOKENS = 12_800  # prompt tokens of an iteration, as in the published artifact
KV_BYTES_PER_S = 8e9  # the paper's network of 64 Gb/s
WARM_UP = 0.1  # of the requests, the first ones, which do not count
# Between two steps of vLLM as it was in 2023: 54.9 ms a token that Splitwise measured of Llama-2-70B on two A100s with
# one request of 512 tokens, less the 48.6 ms that the preset's kernels take.
STEP_S = 0.0063
AT_ONCE = Slo(ttft_s=0.001, tpot_s=1000.0)  # first come, first served under any policy; nothing is late by TPOT


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    policy: str
    reschedules: bool = False
    num_neighbours: int = 32  # that exchange requests
    migrates_on_drain: bool = True  # else an engine that ends waits for what decodes there


ROUND_ROBIN = Contender("round robin", "round_robin")
INFAAS = Contender("infaas", "infaas", migrates_on_drain=False)
DISPATCH = Contender("llumnix, dispatch only", "llumnix")
LLUMNIX = Contender("llumnix", "llumnix", reschedules=True)
CONTENDERS = (ROUND_ROBIN, INFAAS, DISPATCH, LLUMNIX)


def make_topology(
    contender: Contender, num_engines: int, *, caches: bool, scaling: ScalingSpec | None = None, num_started: int = 0
) -> Topology:
    """With ``scaling`` so many engines are started at first, and the others are on standby."""
    settings: dict[str, Any] = {
        "max_running": 256,
        "chunk_tokens": STEP_TOKENS,
        "prefix_caching": caches,
        "migrates_on_drain": contender.migrates_on_drain,
    }
    if scaling is not None:
        settings |= {"pool": "engine", "at_least": 1, "num_started": num_started}
    return make_fleet(
        "llumnix",
        ServiceSpec(SERVICE, PROFILE, AT_ONCE),
        modelled_engines(num_engines, SERVICE, PROFILE, **settings),
        PolicySpec(contender.policy),
        transfer=TransferSpec(migration_share=0.05),  # copies between GPUs take no core from decodes
        rescheduling=Rescheduling(neighbours=contender.num_neighbours) if contender.reschedules else None,
        placement=None if scaling is None else PlacementSpec(mode=PlacementMode.OFF),
        scaling=scaling,
    )


def make_profile() -> EngineProfile:
    profile = load_profile(PROFILE)
    return replace(profile, kv_memory_bytes=KV_TOKENS * profile.kv_bytes_per_token)


@dataclass(frozen=True, slots=True)
class Case:
    """One run: so many requests with ``lengths`` (S-L, sharegpt, ...) arrive as a Poisson process.

    ``step_s``: that an engine spends between two steps. ``caches``: what is preempted may find its KV again.
    """

    lengths: str
    rate: float  # requests a second
    contender: Contender
    seed: int
    num_requests: int
    num_engines: int = NUM_ENGINES
    coasts: bool = False
    step_s: float = STEP_S
    caches: bool = False

    def requests(self) -> list[TraceRequest]:
        """Draw the requests, the same for every contender."""
        pool, random = described_lengths(PREFIX + self.lengths), Random(f"{self.seed}/trace")
        return arriving(pool, self.rate, self.num_requests, random)


def mean_and_p99(values: Iterable[float | None]) -> tuple[float, float]:
    spread = Distribution.of(values)
    assert spread is not None, "no request was answered"
    return spread.mean, spread.percentile(99)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case. ``preempted`` and ``moves`` are for each request, on average. ``grows``: the backlog did.

    Latencies are the mean and the P99 of requests after the warm-up, in s: until the first token (the paper's prefill),
    of a decoded token, and of the whole request.
    """

    num_requests: int
    num_failed: int
    ttft_s: tuple[float, float]
    tpot_s: tuple[float, float]
    e2e_s: tuple[float, float]
    preempted: float
    moves: float
    grows: bool


def run_case(case: Case) -> Result:
    topology, profile = make_topology(case.contender, case.num_engines, caches=case.caches), make_profile()
    physics = Physics(kv_bytes_per_s=KV_BYTES_PER_S, step_s=case.step_s)
    simulation = make_simulation(topology, profile, case.seed, physics=physics, coasts=case.coasts)
    records = serve(simulation, SERVICE, case.requests())
    counted = sorted(records, key=lambda record: record.arrived_s)[round(WARM_UP * len(records)) :]
    statuses = [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
    return Result(
        num_requests=len(records),
        num_failed=sum(record.outcome is not Outcome.FINISHED for record in records),
        ttft_s=mean_and_p99(record.ttft_s for record in counted),
        tpot_s=mean_and_p99(record.tpot_s for record in counted),
        e2e_s=mean_and_p99(record.e2e_s for record in counted),
        preempted=sum(status.preemptions_total for status in statuses) / len(records),
        moves=sum(status.migrations_total for status in statuses) / len(records),
        grows=judge(stays_of(records)).steadiness is Steadiness.GROWING,
    )
