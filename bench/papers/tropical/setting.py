"""Tropical's setting: its models, workloads and contenders, and the search for what a contender can serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from bench.simulated import make_fleet, modelled_engine
from engines.costs.profiles import load_profile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from simulation.capacity import FoundCapacity, find_capacity
from simulation.experiment import Experiment
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.sources import LoadLevel, SyntheticLoad, TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

PROMISE = 0.9
TPOT_SLO_S = 0.1
TTFT_FACTOR = 5.0
PRECISION = 0.04
UNSPLIT = ("colocated", "chunked")  # engines are all alike for them
MODELS = {"Llama-2-70B TP4": "a100-llama2-70b-tp4", "InternLM2.5-20B TP2": "a100-internlm2.5-20b-tp2"}


@dataclass(frozen=True, slots=True)
class Contender:
    """``chunk_tokens`` is the engines' largest step of prompt tokens; without ``splits``, all engines multiplex."""

    policy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    chunk_tokens: int = 2048
    splits: bool = True

    @property
    def name(self) -> str:
        words = [self.policy, *(f"{key}={value}" for key, value in self.parameters.items())]
        return " ".join(words) + ("" if self.splits or self.policy in UNSPLIT else ", 2 multiplexing")


REJECTING = {"reject_late": True}
CONTENDERS = (
    *(Contender("colocated", parameters, splits=False) for parameters in ({}, REJECTING)),
    *(
        Contender("chunked", parameters, tokens, splits=False)
        for parameters in ({}, REJECTING)
        for tokens in (256, 512, 1024)
    ),
    *(Contender("disaggregated", parameters) for parameters in ({}, REJECTING)),
    Contender("disaggregated_sjf"),
    Contender("tropical"),
    Contender("elastic"),
    Contender("elastic", splits=False),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """``has_arrivals``: requests come when they did, at another rate; else as a Poisson process."""

    name: str
    requests: Sequence[TraceRequest]
    has_arrivals: bool

    def load(self, rate: float, num_requests: int, seed: int) -> TraceLoad | SyntheticLoad:
        if not self.has_arrivals:
            return SyntheticLoad(self.requests, Arrivals(rate), 1e9, num_requests)
        start = Random(seed).randrange(len(self.requests) - num_requests)
        part = self.requests[start : start + num_requests]
        return TraceLoad([replace(request, at_s=request.at_s - part[0].at_s) for request in part])


@dataclass(frozen=True, slots=True)
class Search:
    """One contender on one model and workload: what a worker process does."""

    model: str
    workload: Workload
    contender: Contender
    num_requests: int
    seeds: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.workload.name}, {self.contender.name}"

    def attainment(self, rate: float) -> float:
        """Return the mean over the seeds."""
        return fmean(self._experiment(rate, seed).run().attainment for seed in range(self.seeds))

    def _experiment(self, rate: float, seed: int) -> Experiment:
        preset = MODELS[self.model]
        topology = make_topology(preset, self.contender)
        profiles = dict.fromkeys([engine.id for engine in topology.engines], load_profile(preset))
        load, slo = self.workload.load(rate, self.num_requests, seed), SloRule(TTFT_FACTOR)
        return Experiment(topology, profiles, "model", load, topology.policy, LoadLevel(rate), seed, slo=slo)


def make_topology(profile: str, contender: Contender) -> Topology:
    """Two engines."""
    roles = {"prefill": Role.PREFILL if contender.splits else Role.MULTIPLEX, "decode": Role.MULTIPLEX}
    settings = {"max_running": 256, "chunk_tokens": contender.chunk_tokens}
    engines = [modelled_engine(name, "model", profile, role=role, **settings) for name, role in roles.items()]
    service = ServiceSpec("model", profile, Slo(1.0, TPOT_SLO_S, PROMISE))
    return make_fleet("figure", service, engines, PolicySpec(contender.policy, contender.parameters))


def run_search(search: Search) -> FoundCapacity:
    return find_capacity(search.attainment, PROMISE, 0.5 if "70B" in search.model else 0.7, PRECISION)
