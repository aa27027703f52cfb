"""Aladdin's setting: its models, devices, promises and contenders, and what a fleet makes of a load."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from random import Random

from bench.papers import runs
from bench.papers.runs import make_fleet, make_simulation, modelled_engine
from engines.costs.advice import LatencyPromise, Lengths, advise, with_link
from engines.costs.linear import prefill_s
from engines.costs.presets import load_preset, model_shape
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import PrefillCost
from router.history.records import Outcome, Record
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths

SERVICE = "chat"
SLOS = {  # TTFT and TPOT by device and model: table 2
    ("a100", "llama2-7b"): Slo(0.4, 0.015),
    ("a100", "llama2-13b"): Slo(0.6, 0.030),
    ("a100", "llama2-70b"): Slo(1.6, 0.075),
    ("v100", "llama2-7b"): Slo(0.8, 0.030),
    ("v100", "llama2-13b"): Slo(0.8, 0.050),
}
BEST = {  # devices an engine: table 3
    ("a100", "llama2-7b"): 1,
    ("a100", "llama2-13b"): 1,
    ("a100", "llama2-70b"): 2,
    ("v100", "llama2-7b"): 1,
    ("v100", "llama2-13b"): 2,
}
PCIE = (10e9, 20e-6)  # bytes/s and seconds a hop between A100s of the paper; V100s there have NVLink, as presets do
CONTEXT = 4096  # tokens of a request at most: Llama 2's
LARGEST = 4  # devices of the paper's machines
PREFILL_SHARE = 0.5  # of the time that a prefill engine may be busy, where they are not to be short
CHUNK_TOKENS = 4096
NO_TIME = PrefillCost(0.0, 0.0)  # of prompts that other engines compute
VLLM = {"prefill": "first"}
OURS = {"prefill": "slack"}


@dataclass(frozen=True, slots=True)
class Contender:
    """``is_default``: its engines have the largest parallelism. ``tunes``: it has the best ``theta`` of those tried."""

    name: str
    policy: PolicySpec
    is_default: bool = False
    tunes: bool = False
    num_gateways: int = 1

    def policies(self, thetas: Sequence[float]) -> list[PolicySpec]:
        if not self.tunes:
            return [self.policy]
        return [PolicySpec(self.policy.name, {**self.policy.parameters, "theta": theta}) for theta in thetas]


_IN_SLACK, _GROUPED = PolicySpec("packing", OURS), PolicySpec("packing", {**OURS, "excess": 0.5})
CONTENDERS = (
    Contender("default", PolicySpec("join_shortest_queue", VLLM), is_default=True),
    Contender("JSQ", PolicySpec("join_shortest_queue", VLLM)),
    Contender("power of two", PolicySpec("power_of_two", VLLM)),
    Contender("packing", PolicySpec("packing", {"prompts": False}), tunes=True),
    Contender("JSQ, chunked", PolicySpec("join_shortest_queue")),
    Contender("packing, in slack", _IN_SLACK, tunes=True),
    Contender("packing, 4 gateways", _IN_SLACK, tunes=True, num_gateways=4),
    *(Contender(f"packing, {number} groups", _GROUPED, tunes=True, num_gateways=number) for number in (2, 4)),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Requests that come in the first ``warm_up_s`` are served, but not counted."""

    device: str
    model: str
    rate: float
    is_split: bool
    warm_up_s: float
    duration_s: float
    seed: int

    @property
    def slo(self) -> Slo:
        return SLOS[self.device, self.model]

    def size(self, contender: Contender) -> int:
        """Return the number of devices of an engine."""
        return LARGEST if contender.is_default else BEST[self.device, self.model]

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
        profile = self.profile(contender)
        lengths = Lengths.of((one.num_input, one.num_output) for one in self.lengths)
        if self.is_split:
            profile = replace(profile, prefill=NO_TIME)
        advice = advise(profile, lengths, LatencyPromise(self.slo.ttft_s, self.slo.tpot_s))
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
    role = Role.DECODE if setting.is_split else Role.MULTIPLEX
    roles = {f"engine-{number:03}": role for number in range(num_engines)}
    if setting.is_split:
        lengths, cost = setting.lengths, setting.profile(contender).prefill
        busy = setting.rate * sum(prefill_s(cost, one.num_input) for one in lengths) / len(lengths)
        roles |= {f"prefill-{number:03}": Role.PREFILL for number in range(1 + ceil(busy / PREFILL_SHARE))}
    preset = setting.profile(contender).name
    return make_fleet(
        "engines-needed",
        ServiceSpec(SERVICE, setting.model, setting.slo),
        (
            modelled_engine(name, SERVICE, preset, role=role, max_running=256, chunk_tokens=CHUNK_TOKENS)
            for name, role in roles.items()
        ),
        policy,
        gateways=[f"gateway-{number}" for number in range(contender.num_gateways)],
    )


def serve(setting: Setting, contender: Contender, policy: PolicySpec, num_engines: int) -> list[Record]:
    """Return the records of the requests that count."""
    what = topology(setting, contender, policy, num_engines)
    simulation = make_simulation(what, setting.profile(contender), setting.seed, coasts=True)
    records = runs.serve(simulation, SERVICE, setting.trace())
    return [record for record in records if record.arrived_s >= setting.warm_up_s]
