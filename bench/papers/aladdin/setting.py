"""Aladdin's setting: its models, devices, promises and contenders, and what a fleet makes of a load."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from bench import simulated
from bench.simulated import make_fleet, make_simulation, modelled_engine
from engines.costs.advice import LatencyPromise, Lengths, advise, with_link
from engines.costs.presets import load_preset, model_shape
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from router.history.records import Outcome, Record
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

    name: str
    policy: PolicySpec
    is_default: bool = False
    tunes: bool = False

    def policies(self, thetas: Sequence[float]) -> list[PolicySpec]:
        if not self.tunes:
            return [self.policy]
        return [PolicySpec(self.policy.name, {**self.policy.parameters, "theta": theta}) for theta in thetas]


CONTENDERS = (
    Contender("default", PolicySpec("join_shortest_queue", VLLM), is_default=True),
    Contender("JSQ", PolicySpec("join_shortest_queue", VLLM)),
    Contender("power of two", PolicySpec("power_of_two", VLLM)),
    Contender("packing", PolicySpec("packing", {"prompts": False}), tunes=True),
    Contender("JSQ, chunked", PolicySpec("join_shortest_queue")),
    Contender("packing, in slack", PolicySpec("packing", {"prefill": "slack"}), tunes=True),
)


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


@dataclass(frozen=True, slots=True)
class Trial:
    """Counts the requests that count, and those to which a promise was broken, by which."""

    num_counted: int
    num_refused: int
    num_late: int
    num_slow: int  # though in time with their first token

    @property
    def attainment(self) -> float:
        return (self.num_counted - self.num_refused - self.num_late - self.num_slow) / self.num_counted

    def keeps(self, percent: float) -> bool:
        return self.attainment >= percent / 100

    def __str__(self) -> str:
        missed = f"{self.num_refused} refused, {self.num_late} late, {self.num_slow} slow"
        return f"{self.attainment:.2%} of {self.num_counted} ({missed})"


def trial_of(counted: Sequence[Record]) -> Trial:
    refused = [one for one in counted if one.outcome is not Outcome.FINISHED]
    finished = [one for one in counted if one.outcome is Outcome.FINISHED]
    late = [one for one in finished if not one.meets_ttft]
    slow = [one for one in finished if one.meets_ttft and not one.meets_tpot]
    return Trial(len(counted), len(refused), len(late), len(slow))


def topology(setting: Setting, contender: Contender, policy: PolicySpec, num_engines: int) -> Topology:
    preset = setting.profile(contender).name
    engines = [
        modelled_engine(f"engine-{number:03}", SERVICE, preset, max_running=256, chunk_tokens=CHUNK_TOKENS)
        for number in range(num_engines)
    ]
    return make_fleet("engines-needed", ServiceSpec(SERVICE, setting.model, setting.slo), engines, policy)


def serve(setting: Setting, contender: Contender, policy: PolicySpec, num_engines: int) -> list[Record]:
    """Return the records of the requests that count."""
    what = topology(setting, contender, policy, num_engines)
    simulation = make_simulation(what, setting.profile(contender), setting.seed, coasts=True)
    records = simulated.serve(simulation, SERVICE, setting.trace())
    return [record for record in records if record.arrived_s >= setting.warm_up_s]
