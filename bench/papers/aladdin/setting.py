"""Aladdin's setting: its models, devices, promises and contenders, and what a fleet keeps under a load."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from statistics import fmean

from bench.simulated import make_fleet, make_simulation, modelled_engine, serve
from engines.costs.advice import LatencyPromise, Lengths, advise, with_link
from engines.costs.presets import load_preset, model_shape
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths

SERVICE = "chat"


@dataclass(frozen=True, slots=True)
class Model:
    """The promises of a model on a device (table 2), and how many devices its engines have (table 3)."""

    slo: Slo
    num_devices: int


MODELS = {
    ("a100", "llama2-7b"): Model(Slo(0.4, 0.015), 1),
    ("a100", "llama2-13b"): Model(Slo(0.6, 0.030), 1),
    ("a100", "llama2-70b"): Model(Slo(1.6, 0.075), 2),
    ("v100", "llama2-7b"): Model(Slo(0.8, 0.030), 1),
    ("v100", "llama2-13b"): Model(Slo(0.8, 0.050), 2),
}
PCIE = (10e9, 20e-6)  # bytes/s and seconds a hop between A100s of the paper; V100s there have NVLink, as presets do
CONTEXT = 4096  # tokens of a request at most: Llama 2's
LARGEST = 4  # devices of the paper's machines
CHUNK_TOKENS = 4096
VLLM = {"prefill": "first"}


@dataclass(frozen=True, slots=True)
class Contender:
    """``is_default``: its engines have the largest parallelism. ``tunes``: it has the best ``theta`` of those tried."""

    policy: PolicySpec
    is_default: bool = False
    tunes: bool = False

    def with_theta(self, theta: float | None) -> PolicySpec:
        more = {} if theta is None else {"theta": theta}
        return PolicySpec(self.policy.name, {**self.policy.parameters, **more})


CONTENDERS = {
    "default": Contender(PolicySpec("join_shortest_queue", VLLM), is_default=True),
    "JSQ": Contender(PolicySpec("join_shortest_queue", VLLM)),
    "power of two": Contender(PolicySpec("power_of_two", VLLM)),
    "packing": Contender(PolicySpec("packing", {"prompts": False}), tunes=True),
    "JSQ, chunked": Contender(PolicySpec("join_shortest_queue")),
    "packing, in slack": Contender(PolicySpec("packing", {"prefill": "slack"}), tunes=True),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Requests that come in the first ``warm_up_s`` are served, but not counted."""

    device: str
    model: str
    rate: float
    warm_up_s: float
    duration_s: float
    seed: int

    @property
    def slo(self) -> Slo:
        return MODELS[self.device, self.model].slo

    def size(self, contender: Contender) -> int:
        """Return the number of devices of an engine."""
        return LARGEST if contender.is_default else MODELS[self.device, self.model].num_devices

    def profile(self, contender: Contender) -> EngineProfile:
        preset = load_preset(f"{self.device}-{self.model}-tp{self.size(contender)}")
        return with_link(preset, model_shape(self.model), *PCIE) if self.device == "a100" else preset

    @property
    def lengths(self) -> Sequence[TraceRequest]:
        return [one for one in described_lengths(f"{PREFIX}sharegpt") if one.num_input + one.num_output <= CONTEXT]

    def trace(self) -> Sequence[TraceRequest]:
        span_s = self.warm_up_s + self.duration_s
        return list(synthesize(self.lengths, Arrivals(self.rate), span_s, Random(f"{self.seed}/trace")))

    def bound(self, contender: Contender) -> float:
        """Return the engines that are needed on average, however requests are routed: what `mesh advise` reckons."""
        lengths = Lengths.of((one.num_input, one.num_output) for one in self.lengths)
        advice = advise(self.profile(contender), lengths, LatencyPromise(self.slo.ttft_s, self.slo.tpot_s))
        return inf if advice.broken else self.rate / advice.rate


def attainment(setting: Setting, contender: Contender, theta: float | None, num_engines: int) -> float:
    """Serve all requests. Return the share of those that count that were answered within both promises."""
    profile = setting.profile(contender)
    engines = [
        modelled_engine(f"engine-{number:03}", SERVICE, profile.name, max_running=256, chunk_tokens=CHUNK_TOKENS)
        for number in range(num_engines)
    ]
    service = ServiceSpec(SERVICE, setting.model, setting.slo)
    topology = make_fleet("engines-needed", service, engines, contender.with_theta(theta))
    records = serve(make_simulation(topology, profile, setting.seed, coasts=True), SERVICE, setting.trace())
    return fmean(one.meets_slo for one in records if one.arrived_s >= setting.warm_up_s)
