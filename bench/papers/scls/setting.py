"""SCLS's evaluation as values: workers, requests, contenders, and one run of them.

The paper says of CodeFuse's requests that inputs and answers have at most 1024 tokens (longer inputs are cut). It says
that the vast majority of answers is shorter than 512 and done within three slices of 128. Here both are log-normal, cut
at 1024. Answers have a median of 150 tokens, and 5 % of them are longer than 512. Prompts have a median of 200 and the
same spread on a logarithmic scale as e. The latter is an assumption: the paper says nothing of it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from math import exp, log
from random import Random
from statistics import NormalDist, fmean, pstdev
from typing import Any

from bench.simulated import MANY, make_fleet, make_simulation, modelled_engine, percentile, serve
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.frames import Sender
from mesh.wire.requests import SubmitBatch
from mesh.wire.status import DecodeCost
from router.history.records import Outcome
from simulation.cluster import Simulation
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.network import Watch
from simulation.reports.steadiness import Steadiness, judge
from simulation.reports.summary import stays_of

SERVICE = "llama2-13b"
PROFILE = "a100-llama2-13b-tp1"
NUM_WORKERS = 8
LONGEST = 1024  # tokens of an input, and of an answer
POOL = 10_000  # requests to draw from
ANSWER_MEDIAN, ANSWER_P95 = 150, 512
PROMPT_MEDIAN, PROMPT_SIGMA = 200, 1.0
SLICE_TOKENS = 128
FACTOR = 0.5
PATIENT = Slo(ttft_s=1e6, tpot_s=1e3)  # nobody gives up
CALM = Timing(heartbeat_s=10.0, lease_s=50.0, reply_s=60.0, stall_s=1e6)  # nothing fails


class Kind(StrEnum):
    """The engines under a worker."""

    HF = "HF"  # transformers
    DS = "DS"  # DeepSpeed-inference, FastGen


@dataclass(frozen=True, slots=True)
class Engine:
    """``batch``: requests of a static batch without SCLS. ``rules`` bound batches instead of memory (algorithm 2)."""

    batch: int
    interval_s: float
    rules: tuple[tuple[int, int], ...] = ()


ENGINES = {Kind.HF: Engine(16, 6.0), Kind.DS: Engine(12, 3.0, ((512, 28), (1024, 22), (2048, 12)))}


@cache
def profile(kind: Kind) -> EngineProfile:
    """DeepSpeed's kernels cost what the preset's do.

    Transformers' decode steps are solved from what the paper says of its figure 11 (section 4.4): 15 inputs of 10
    tokens and one of 1024 take 13.5 s for 128 steps in one batch, 7.6 s in two. With the preset's prefills (1.6 s;
    0.13 s) that leaves
    128 (d4 + 16 * 1088.5 d1) and 128 (2 d4 + (15 * 74.5 + 1088.5) d1) seconds, so d1 = 3.85 us and d4 = 25 ms.
    """
    known = load_profile(PROFILE)
    if kind is Kind.DS:
        return known
    return replace(known, name="transformers", decode=DecodeCost(0.025, 0.0, 3.85e-6))


@dataclass(frozen=True, slots=True)
class Contender:
    """``policy`` with ``parameters`` on engines that schedule so, with so many requests in a batch."""

    name: str
    scheduling: Scheduling
    policy: str
    parameters: tuple[tuple[str, object], ...] = ()
    max_running: int = 256
    chunk_tokens: int = MANY


def sls(kind: Kind) -> Contender:
    return Contender("SLS", Scheduling.PADDED, "round_robin", max_running=ENGINES[kind].batch)


def scls(kind: Kind, name: str = "SCLS", **changes: object) -> Contender:
    engine = ENGINES[kind]
    parameters = {
        "slice_tokens": SLICE_TOKENS,
        "interval_s": engine.interval_s,
        "factor": FACTOR,
        "batch_rules": engine.rules,
    } | changes
    return Contender(name, Scheduling.PADDED, "slices", tuple(parameters.items()), engine.batch)


def ils(most_running: int | None = None) -> Contender:
    """Continuous batching, with prompts in chunks; ``most_running`` requests at a time, None: what memory holds."""
    name = "ILS" if most_running is None else f"ILS, {most_running} at a time"
    return Contender(name, Scheduling.SLO, "round_robin", max_running=most_running or 256, chunk_tokens=512)


def parts(kind: Kind) -> Sequence[Contender]:
    """What the paper's section 5.4 adds to SLS, one after the other."""
    turns: dict[str, object] = {"balancing": "round_robin", "factor": 0.0}
    return (
        sls(kind),
        scls(kind, "SO: slices only", **turns, batching="none"),
        scls(kind, "PM: less padding", **turns, batch_limit=ENGINES[kind].batch),
        scls(kind, "AB: batches by time", **turns),
        scls(kind, "LB: levelled", factor=0.0),
        scls(kind),
    )


CONTENDERS = {Kind.HF: (sls(Kind.HF), scls(Kind.HF)), Kind.DS: (sls(Kind.DS), ils(), scls(Kind.DS))}


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    kind: Kind
    contender: Contender
    rate: float
    seconds: float
    seed: int = 0
    num_workers: int = NUM_WORKERS

    def requests(self) -> list[TraceRequest]:
        """Draw the requests, the same for every contender."""
        return list(synthesize(codefuse_like(), Arrivals(self.rate), self.seconds, Random(f"{self.seed}/trace")))

    def topology(self) -> Topology:
        one, names = self.contender, [f"worker-{index}" for index in range(self.num_workers)]
        batches: dict[str, Any] = {"max_running": one.max_running, "chunk_tokens": one.chunk_tokens}
        workers = [modelled_engine(name, SERVICE, PROFILE, scheduling=one.scheduling, **batches) for name in names]
        policy = PolicySpec(one.policy, dict(one.parameters))
        return make_fleet("slices", ServiceSpec(SERVICE, PROFILE, PATIENT), workers, policy, timing=CALM)


@cache
def codefuse_like() -> Sequence[TraceRequest]:
    answers = _log_normal(ANSWER_MEDIAN, log(ANSWER_P95 / ANSWER_MEDIAN) / NormalDist().inv_cdf(0.95))
    prompts = _log_normal(PROMPT_MEDIAN, PROMPT_SIGMA)
    shuffled = Random("pairs").sample(answers, len(answers))
    return [TraceRequest(0.0, *pair) for pair in zip(prompts, shuffled, strict=True)]


def _log_normal(median: float, sigma: float) -> list[int]:
    """Return every length as often as its distribution says."""
    normal = NormalDist(log(median), sigma)
    return [min(LONGEST, max(1, round(exp(normal.inv_cdf((index + 0.5) / POOL))))) for index in range(POOL)]


@dataclass(frozen=True, slots=True)
class Result:
    """``throughput``: requests over the time until the last has ended. Times in seconds.

    ``spread_s``: standard deviation of the workers' completion times. ``slices``: prefills of a request, on average.
    ``early``: the share of batches whose answers were all complete before the slice was over. ``grows``: requests in
    flight did, as they do where more arrives than is served.
    """

    num_requests: int
    throughput: float
    mean_s: float
    p95_s: float
    spread_s: float
    slices: float
    early: float
    grows: bool


class EarlyReturns:
    """Counts batches that engines get for a slice, and those that end early, as all answers are complete before."""

    def __init__(self, simulation: Simulation) -> None:
        self._num_batches = self._num_early = 0
        for name, engine in simulation.engines.items():
            simulation.network.hear(name, partial(self._hear, engine.receive))

    @property
    def share(self) -> float:
        return self._num_early / max(1, self._num_batches)

    def _hear(self, receive: Watch, sender: Sender, message: object) -> None:
        if isinstance(message, SubmitBatch):
            left = max(one.spec.sampling.max_tokens - len(one.spec.generated) for one in message.submits)
            self._num_batches += 1
            self._num_early += left < (message.submits[0].slice_tokens or 0)
        receive(sender, message)


def run_case(case: Case) -> Result:
    """Raise RuntimeError if a request does not finish."""
    simulation = make_simulation(case.topology(), profile(case.kind), case.seed, coasts=True)
    returns = EarlyReturns(simulation)
    records = serve(simulation, SERVICE, case.requests())
    if failed := [record for record in records if record.outcome is not Outcome.FINISHED]:
        raise RuntimeError(f"{len(failed)} requests did not finish; the first: {failed[0].reason}")
    times, ends = list[float](), defaultdict[str | None, float](float)
    for record in records:
        assert record.e2e_s is not None
        times.append(record.e2e_s)
        ends[record.decode_engine] = max(ends[record.decode_engine], record.arrived_s + record.e2e_s)
    return Result(
        num_requests=len(records),
        throughput=len(records) / max(ends.values()),
        mean_s=fmean(times),
        p95_s=percentile(times, 95),
        spread_s=pstdev(ends.values()),
        slices=fmean(record.attempts for record in records),
        early=returns.share,
        grows=judge(stays_of(records)).steadiness is Steadiness.GROWING,
    )
