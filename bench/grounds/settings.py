"""Makes the five settings: fleets, requests, the measure that each paper judges by, and one run of a contender."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from statistics import fmean
from typing import Any, Final

from bench.combined.contenders import EVERYBODY, Contender
from bench.papers.aladdin import setting as aladdin
from bench.papers.llumnix import setting as llumnix
from bench.papers.scls import setting as scls
from bench.papers.seallm.lengths import LONGBENCH, SHAREGPT, Spread
from bench.papers.tropical import setting as tropical
from bench.simulated import arriving, make_fleet, make_simulation, modelled_engines, percentile, serve
from engines.costs.linear import serving_s
from engines.costs.named_profiles import load_profile
from mesh.rules import Lateness
from mesh.topology.schema import EngineSpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Outcome, Record
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.loads.workload_lengths import PREFIX, described_lengths

WARM_UP = 0.1  # of the requests, the first ones, which do not count


@dataclass(frozen=True, slots=True)
class Fleet:
    """Engines, what they cost, and the requests that they get."""

    topology: Topology
    profiles: Profile | Mapping[str, Profile]
    requests: Sequence[TraceRequest]
    slo: SloRule = field(default_factory=SloRule)
    physics: Physics = field(default_factory=Physics)


@dataclass(frozen=True, slots=True)
class Ground:
    """``fleet`` of a contender, with ``num_requests`` of a seed. ``value``: the paper's measure of requests that count,
    of which more is better, or less.
    """

    measure: str
    fleet: Callable[[Contender, int, int], Fleet]
    value: Callable[[Sequence[Record]], float]
    less_is_better: bool = False


def engines_for(contender: Contender, engines: Sequence[EngineSpec], num_prefill: int) -> list[EngineSpec]:
    """The engines as the contender uses them."""
    layout = contender.layout
    return [
        replace(
            engine,
            role=Role.PREFILL if layout.has_prefill and number < num_prefill else Role.MULTIPLEX,
            slice_tokens=layout.slice_tokens if engine.scheduling is Scheduling.SLO else None,
        )
        for number, engine in enumerate(engines)
    ]


def attained(records: Sequence[Record]) -> float:
    return 100 * fmean(one.meets_slo for one in records)


# --- Tropical ---------------------------------------------------------------------------------------------------------

TROPICAL_RATE = 1.9  # requests a second on four engines


def _tropical(contender: Contender, num_requests: int, seed: int) -> Fleet:
    """Four engines of InternLM2.5-20B, prompts and answers like LongBench's."""
    preset, workload = tropical.MODELS["InternLM2.5-20B TP2"].preset, tropical.Workload()
    chunk = 512 if contender.policy == "chunked" else 2048
    named = modelled_engines(4, "model", preset, max_running=256, chunk_tokens=chunk)
    service = ServiceSpec("model", preset, Slo(1.0, tropical.TPOT_SLO_S, tropical.PROMISE))
    topology = make_fleet("tropical", service, engines_for(contender, named, 2), contender.spec)
    requests = arriving(workload.load(1.0, num_requests, seed).pool, TROPICAL_RATE, num_requests, Random(seed))
    return Fleet(topology, load_profile(preset), requests, SloRule(tropical.TTFT_FACTOR))


# --- Llumnix ----------------------------------------------------------------------------------------------------------

LLUMNIX_RATE = 5.0  # requests a second on 16 engines


def _llumnix(contender: Contender, num_requests: int, seed: int) -> Fleet:
    """Sixteen A10s with Llama-7B, short prompts and long answers. Nothing is promised."""
    there = llumnix.make_topology(llumnix.ROUND_ROBIN, llumnix.NUM_ENGINES, caches=False)
    topology = replace(there, policy=contender.spec, engines=tuple(engines_for(contender, there.engines, 4)))
    pool, random = described_lengths(f"{PREFIX}S-L"), Random(f"{seed}/trace")
    requests = arriving(pool, LLUMNIX_RATE, num_requests, random)
    physics = Physics(kv_bytes_per_s=llumnix.KV_BYTES_PER_S, step_s=llumnix.STEP_S)
    return Fleet(topology, llumnix.make_profile(), requests, physics=physics)


# --- SeaLLM -----------------------------------------------------------------------------------------------------------

CHAT, SUMMARIES = "chat", "summaries"
SHARED: Final = {CHAT: ("a100-llama2-7b-tp1", SHAREGPT), SUMMARIES: ("a100-llama2-13b-tp1", LONGBENCH)}
SEALLM_RATE = 10.0  # requests a second of both services on four engines
CONTEXT = 4096


def _seallm(contender: Contender, num_requests: int, seed: int) -> Fleet:
    """Four A100s, each with both services and their doubling budgets; lengths of table 1, cut to 4,096 tokens."""
    spread, random = Spread(context=CONTEXT), Random(f"{seed}/lengths")
    profiles = {name: load_profile(preset) for name, (preset, _) in SHARED.items()}
    services = [
        ServiceSpec(
            name,
            preset,
            Slo(5.0, 0.2),
            usual_prompt=min(CONTEXT - 21, round(means.prompt)),
            usual_answer=round(means.answer),
            late=Lateness.SERVE,
        )
        for name, (preset, means) in SHARED.items()
    ]
    settings: dict[str, Any] = {"max_running": 128, "chunk_tokens": 2048, "scheduling": Scheduling.DB}
    engines = modelled_engines(4, CHAT, "", services=tuple(SHARED), **settings)
    named = engines_for(contender, engines, 1)
    topology = make_fleet("seallm", services, named, contender.spec)
    requests: list[TraceRequest] = []
    for name, (_, means) in SHARED.items():
        drawn = [spread.request(means, random) for _ in range(num_requests // 2)]
        requests += [replace(one, service=name) for one in arriving(drawn, SEALLM_RATE / 2, len(drawn), random)]
    return Fleet(
        topology,
        dict.fromkeys([engine.id for engine in named], SharedProfile.of(profiles)),
        sorted(requests, key=lambda one: one.at_s),
    )


def _normalised(records: Sequence[Record]) -> float:
    """Mean latency over the mean execution time of the service."""
    found: list[float] = []
    for name, (preset, means) in SHARED.items():
        profile = load_profile(preset)
        prompt = min(CONTEXT - means.answer, means.prompt)
        alone_s = serving_s(profile.prefill, profile.decode, 1, round(prompt), round(means.answer))
        found += [
            one.e2e_s / alone_s if one.outcome is Outcome.FINISHED and one.e2e_s else inf
            for one in records
            if one.service == name
        ]
    return fmean(found)


# --- Aladdin ----------------------------------------------------------------------------------------------------------

ALADDIN = aladdin.Setting("a100", "llama2-13b", rate=10.0, warm_up_s=0.0, duration_s=0.0, seed=0, by_rule=True)
ALADDIN_ENGINES = 7


def _aladdin(contender: Contender, num_requests: int, seed: int) -> Fleet:
    """Engines of Llama-2-13B on an A100 each, fewer than spreading needs."""
    profile = ALADDIN.profile(aladdin.CONTENDERS["packing"])
    settings = {"max_running": 256, "chunk_tokens": aladdin.CHUNK_TOKENS}
    named = modelled_engines(ALADDIN_ENGINES, aladdin.SERVICE, profile.name, **settings)
    service = ServiceSpec(aladdin.SERVICE, ALADDIN.model, ALADDIN.slo)
    topology = make_fleet("aladdin", service, engines_for(contender, named, 2), contender.spec)
    requests = arriving(aladdin.lengths(), ALADDIN.rate, num_requests, Random(f"{seed}/trace"))
    return Fleet(topology, profile, requests)


# --- SCLS -------------------------------------------------------------------------------------------------------------

SCLS_RATE = 20.0  # requests a second on eight workers


def _scls(contender: Contender, num_requests: int, seed: int) -> Fleet:
    """Eight workers of Llama-2-13B under DeepSpeed. Slices are of padded batches, others batch continuously."""
    kind = scls.Kind.DS
    own = scls.scls(kind) if contender.policy == "slices" else scls.ils()
    there = scls.Case(kind, own, SCLS_RATE, 0.0).topology()
    if contender.policy != "slices":
        there = replace(there, policy=contender.spec, engines=tuple(engines_for(contender, there.engines, 2)))
    requests = arriving(scls.codefuse_like(), SCLS_RATE, num_requests, Random(f"{seed}/trace"))
    return Fleet(there, scls.profile(kind), requests)


def _throughput(records: Sequence[Record]) -> float:
    """Requests a second until the last has ended."""
    ends = [one.arrived_s + one.e2e_s for one in records if one.e2e_s is not None]
    return len(ends) / (max(ends) - min(one.arrived_s for one in records))


def _ttft_p99_s(records: Sequence[Record]) -> float:
    return percentile([inf if one.ttft_s is None else one.ttft_s for one in records], 99)


GROUNDS: Final[Mapping[str, Ground]] = {
    "tropical": Ground("kept, %", _tropical, attained),
    "llumnix": Ground("TTFT P99, s", _llumnix, _ttft_p99_s, less_is_better=True),
    "seallm": Ground("normalised latency", _seallm, _normalised, less_is_better=True),
    "aladdin": Ground("kept, %", _aladdin, attained),
    "scls": Ground("requests/s", _scls, _throughput),
}
OWN: Final[Mapping[str, Contender]] = {  # what two papers have on their own engines, and no other ground takes
    "aladdin": Contender("packing", {"prompts": False}),
    "scls": Contender("slices"),
}


# --- one run ----------------------------------------------------------------------------------------------------------

OWN_NAME = "the paper's own"


@dataclass(frozen=True, slots=True)
class Case:
    """One contender, by name, on one ground."""

    ground: str
    contender: str
    num_requests: int
    seed: int


def measure(case: Case) -> float:
    """The ground's measure of what came of the run."""
    ground = GROUNDS[case.ground]
    contender = OWN[case.ground] if case.contender == OWN_NAME else EVERYBODY[case.contender]
    fleet = ground.fleet(contender, case.num_requests, case.seed)
    topology, moves = replace(fleet.topology, rescheduling=contender.rescheduling), contender.rescheduling is not None
    simulation = make_simulation(
        topology, fleet.profiles, case.seed, physics=fleet.physics, slo=fleet.slo, coasts=not moves
    )
    records = serve(simulation, topology.services[0].name, fleet.requests)
    records.sort(key=lambda one: one.arrived_s)
    return ground.value(records[round(WARM_UP * len(records)) :])
