"""Aladdin's setting: its models, devices, promises and contenders, and what a fleet keeps under a load."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from random import Random
from statistics import fmean

from bench.simulated import make_fleet, make_simulation, modelled_engines, percentile, serve
from engines.costs.advice import LatencyPromise, Lengths, advise, with_link
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.presets import load_preset, model_shape
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from mesh.wire.status import PrefillCost
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths
from simulation.reports.steadiness import Steadiness, judge
from simulation.reports.summary import stays_of

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
RULE = 1.3  # times the TPOT of a lone request: what the paper promises by (section 6.1)
CONTEXT = 4096  # tokens of a request at most: Llama 2's
LARGEST = 4  # devices of the paper's machines
CHUNK_TOKENS = 4096
PATIENT_S = 1e6
VLLM = {"prefill": "first"}


@dataclass(frozen=True, slots=True)
class Link:
    """Over which A100s exchange activations, on top of the presets' NVLink. The paper's V100s have NVLink."""

    bytes_per_s: float
    hop_s: float

    def __str__(self) -> str:
        return f"{self.bytes_per_s / 1e9:g} GB/s, {self.hop_s * 1e6:g} us"


PCIE = Link(10e9, 20e-6)  # assumed: the paper says PCIe


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
    """Requests that come in the first ``warm_up_s`` are served, but not counted.

    ``by_rule``: promises are what the paper's rule makes of these engines: the prefill of a full context, and `RULE`
    times the TPOT of a lone request; otherwise those of table 2. ``only_decodes``: prompts cost nothing, and nothing is
    promised of them (figure 12).
    """

    device: str
    model: str
    rate: float
    warm_up_s: float
    duration_s: float
    seed: int
    link: Link | None = PCIE
    by_rule: bool = False
    only_decodes: bool = False

    @property
    def slo(self) -> Slo:
        promised = MODELS[self.device, self.model].slo
        if self.by_rule:
            own = self._priced(MODELS[self.device, self.model].num_devices)
            lone_s = decode_step_s(own.decode, 1, round(mean_lengths().held))
            promised = Slo(prefill_s(own.prefill, CONTEXT), RULE * lone_s)
        return replace(promised, ttft_s=PATIENT_S) if self.only_decodes else promised

    def size(self, contender: Contender) -> int:
        """Return the number of devices of an engine."""
        return LARGEST if contender.is_default else MODELS[self.device, self.model].num_devices

    def profile(self, contender: Contender) -> EngineProfile:
        priced = self._priced(self.size(contender))
        return replace(priced, prefill=PrefillCost(0.0, 0.0)) if self.only_decodes else priced

    def _priced(self, num_devices: int) -> EngineProfile:
        preset = load_preset(f"{self.device}-{self.model}-tp{num_devices}")
        if self.device != "a100" or self.link is None:
            return preset
        return with_link(preset, model_shape(self.model), self.link.bytes_per_s, self.link.hop_s)

    def trace(self) -> Sequence[TraceRequest]:
        span_s = self.warm_up_s + self.duration_s
        return list(synthesize(lengths(), Arrivals(self.rate), span_s, Random(f"{self.seed}/trace")))

    def bound(self, contender: Contender) -> float:
        """Return the engines that are needed on average, however requests are routed: what `mesh advise` reckons."""
        promise = LatencyPromise(self.slo.ttft_s, self.slo.tpot_s)
        advice = advise(self.profile(contender), mean_lengths(), promise)
        return inf if advice.broken else self.rate / advice.rate


@cache
def lengths() -> Sequence[TraceRequest]:
    """ShareGPT's that fit."""
    return [one for one in described_lengths(f"{PREFIX}sharegpt") if one.num_input + one.num_output <= CONTEXT]


@cache
def mean_lengths() -> Lengths:
    return Lengths.of((one.num_input, one.num_output) for one in lengths())


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet of one contender. ``theta``: of packing."""

    setting: Setting
    contender: str
    theta: float | None
    num_engines: int


@dataclass(frozen=True, slots=True)
class Result:
    """``attainment``: the share of the requests that count that met both promises. ``grows``: the backlog did."""

    num_requests: int
    attainment: float
    tpot_p99_s: float
    grows: bool

    def keeps(self, percent: float) -> bool:
        """A promise is not kept where more arrives than is served: it breaks later."""
        return not self.grows and self.attainment >= percent / 100


def run_case(case: Case) -> Result:
    """Serve all requests."""
    setting, contender = case.setting, CONTENDERS[case.contender]
    profile = setting.profile(contender)
    settings = {"max_running": 256, "chunk_tokens": CHUNK_TOKENS}
    engines = modelled_engines(case.num_engines, SERVICE, profile.name, **settings)
    service = ServiceSpec(SERVICE, setting.model, setting.slo)
    topology = make_fleet("engines-needed", service, engines, contender.with_theta(case.theta))
    records = serve(make_simulation(topology, profile, setting.seed, coasts=True), SERVICE, setting.trace())
    counted = [one for one in records if one.arrived_s >= setting.warm_up_s]
    return Result(
        num_requests=len(counted),
        attainment=fmean(one.meets_slo for one in counted),
        tpot_p99_s=percentile([one.tpot_s for one in counted if one.tpot_s is not None], 99),
        grows=judge(stays_of(records)).steadiness is Steadiness.GROWING,
    )
