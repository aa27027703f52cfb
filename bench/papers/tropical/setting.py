"""Tropical's setting: its models, workloads and contenders, and the search for what a contender can serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from random import Random

from bench.papers.seallm.lengths import LONGBENCH, Spread
from bench.simulated import make_fleet, modelled_engines
from engines.costs.named_profiles import load_profile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from simulation.capacity import FoundCapacity, find_capacity
from simulation.experiment import Experiment
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.rows import TraceError
from simulation.loads.sources import LoadLevel, SyntheticLoad, TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace
from simulation.loads.workload import SloRule
from simulation.reports.steadiness import Steadiness
from simulation.reports.summary import Distribution, Summary

PROMISE = 0.9
TPOT_SLO_S = 0.1
TTFT_FACTOR = 5.0
PRECISION = 0.04
BARELY = 1e-9
PERCENTS = range(0, 101, 5)
UNSPLIT = ("colocated", "chunked")  # engines are all alike for them


@dataclass(frozen=True, slots=True)
class Model:
    """``context``: tokens of a request at most. ``first_rate``: of an engine, where searches begin, in requests/s."""

    preset: str
    context: int
    first_rate: float


MODELS = {
    "InternLM2.5-20B TP2": Model("a100-internlm2.5-20b-tp2", 32768, 0.35),
    "Llama-2-70B TP4": Model("a100-llama2-70b-tp4", 4096, 0.8),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """``chunk_tokens`` is the engines' largest step of prompt tokens; without ``splits``, all engines multiplex."""

    policy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    chunk_tokens: int = 2048
    splits: bool = True

    @property
    def name(self) -> str:
        chunk = [f"{self.chunk_tokens}"] if self.policy == "chunked" else []
        return ", ".join([" ".join([self.policy, *chunk]), *self.parameters])


REJECTING = {"reject_late": True}
ALL = (
    *(Contender("colocated", parameters, splits=False) for parameters in ({}, REJECTING)),
    *(
        Contender("chunked", parameters, tokens, splits=False)
        for tokens in (256, 512, 1024)
        for parameters in ({}, REJECTING)
    ),
    *(Contender("disaggregated", parameters) for parameters in ({}, REJECTING)),
    Contender("disaggregated_sjf"),
    Contender("tropical"),
    Contender("elastic"),
)
CONTENDERS = {contender.name: contender for contender in ALL}


@dataclass(frozen=True, slots=True)
class Workload:
    """Mooncake's conversations, which come when they did, at another rate; or without a ``trace``, prompts and answers
    with the means of LongBench's as SeaLLM's table 1 has them, lognormal, as a Poisson process. Prompts and answers
    together are cut to ``context`` tokens.
    """

    trace: Path | None = None
    context: int | None = None

    @property
    def name(self) -> str:
        return "LongBench-like" if self.trace is None else "Mooncake"

    def load(self, rate: float, num_requests: int, seed: int) -> TraceLoad | SyntheticLoad:
        """Raise `TraceError` if the trace is shorter."""
        if self.trace is None:
            spread, random = Spread(context=self.context), Random(f"{seed}/lengths")
            drawn = [spread.request(LONGBENCH, random) for _ in range(num_requests)]
            return SyntheticLoad(drawn, Arrivals(rate), inf, num_requests)
        requests = _read(self.trace)
        if len(requests) <= num_requests:
            raise TraceError(f"{self.trace}: has {len(requests)} requests; more than {num_requests} are needed")
        start = Random(seed).randrange(len(requests) - num_requests)
        part = requests[start : start + num_requests]
        return TraceLoad([self._cut(replace(request, at_s=request.at_s - part[0].at_s)) for request in part])

    def _cut(self, request: TraceRequest) -> TraceRequest:
        if self.context is None:
            return request
        answer = min(request.num_output, self.context // 2)
        return replace(request, num_input=min(request.num_input, self.context - answer), num_output=answer)


@cache
def _read(path: Path) -> Sequence[TraceRequest]:
    return load_trace(path, Random("spread"))


@dataclass(frozen=True, slots=True)
class Case:
    """One contender on one model, workload and seed. Half of the engines are prefill engines where it splits them."""

    model: str
    workload: Workload
    contender: str
    num_requests: int
    seed: int
    num_engines: int = 2

    def run(self, rate: float) -> Summary:
        """Serve requests that come at that rate. What is warm-up does not count."""
        preset, contender = MODELS[self.model].preset, CONTENDERS[self.contender]
        topology = make_topology(preset, contender, self.num_engines)
        profiles = dict.fromkeys([engine.id for engine in topology.engines], load_profile(preset))
        load, slo = self.workload.load(rate, self.num_requests, self.seed), SloRule(TTFT_FACTOR)
        level = LoadLevel(rate)
        return Experiment(
            topology, profiles, "model", load, topology.policy, level, self.seed, slo=slo, is_judged=True
        ).run()

    def attainment(self, rate: float) -> float:
        """What is kept at that rate; a promise is broken where the backlog grows, as it breaks later."""
        summary = self.run(rate)
        grows = summary.judgement is not None and summary.judgement.steadiness is Steadiness.GROWING
        return min(summary.attainment, PROMISE - BARELY) if grows else summary.attainment


def make_topology(profile: str, contender: Contender, num_engines: int) -> Topology:
    """Engines by halves."""
    settings = {"max_running": 256, "chunk_tokens": contender.chunk_tokens}
    num_prefill = num_engines // 2 if contender.splits else 0
    engines = modelled_engines(num_engines, "model", profile, num_prefill=num_prefill, **settings)
    service = ServiceSpec("model", profile, Slo(1.0, TPOT_SLO_S, PROMISE))
    return make_fleet("figure", service, engines, PolicySpec(contender.policy, contender.parameters))


def search(case: Case) -> FoundCapacity:
    """Find the rate up to which `PROMISE` is kept."""
    return find_capacity(case.attainment, PROMISE, MODELS[case.model].first_rate * case.num_engines, PRECISION)


# --- at one rate ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rated:
    """A case at a rate."""

    case: Case
    rate: float


@dataclass(frozen=True, slots=True)
class Latencies:
    """Quantiles at `PERCENTS` of what requests took in all, and of how many times as long as their prefill on an idle
    engine the first token took. The latter is what queueing makes of it. Two P90 follow. Seconds.
    """

    attainment: float
    ttft_p90_s: float
    tpot_p90_s: float
    e2e_s: tuple[float, ...]
    stretch: tuple[float, ...]


def measure(rated: Rated) -> Latencies:
    """Serve the case's requests at that rate."""
    summary = rated.case.run(rated.rate)
    ttft, tpot, e2e, ratios = map(_known, (summary.ttft, summary.tpot, summary.e2e, summary.ttft_ratio))
    return Latencies(
        attainment=summary.attainment,
        ttft_p90_s=ttft.percentile(90),
        tpot_p90_s=tpot.percentile(90),
        e2e_s=tuple(map(e2e.percentile, PERCENTS)),
        stretch=tuple(TTFT_FACTOR * ratios.percentile(percent) for percent in PERCENTS),
    )


def _known(spread: Distribution | None) -> Distribution:
    assert spread is not None, "nobody was answered"
    return spread
