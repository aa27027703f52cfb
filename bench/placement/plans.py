"""Plans under loads that shift: a plan that stays beside a daemon that changes it, in simulation.

    python -m bench.placement.plans moving [--seeds 3] [--phase 120] [--json FILE]
    python -m bench.placement.plans regrouping [--seeds 3] [--phase 360] [--json FILE]

``moving``: four engines of four A100s each serve one Llama-2-70B of three services, as the weights of two leave an
engine without KV memory. The busy service needs two engines. A plan that was made for the first phase stays, or a
daemon can only load beside, or it swaps. Weights are read from an NVMe drive for each device, and copied over PCIe 4.0
if they are staged.

``regrouping``: four A100s serve two services of Llama-3-8B's size, each on engines of one device, or of two in tensor
parallelism. One service has long prompts and promises its tokens fast, which an engine of one device cannot keep beside
a prompt. The other has many short requests, for which two engines of one device have more room than one of two. Engines
that may change are beside those that stay.

Another service is the busy one in each of three phases. The search is one that knows which service that is, and what
it wants. All that decides when, and carries it out, is the product's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any, Final

from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import attainment, make_fleet, make_simulation, modelled_engine, percentile, serve
from engines.costs.presets import load_preset
from mesh.topology.schema import EngineSpec, PlacementSpec, PolicySpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from router.history.records import Outcome
from router.placement.change.replacement import Proposal, Verdict
from router.placement.observe.traffic import Moments, ServiceTraffic
from router.placement.search.plan import Plan
from router.placement.search.question import Answer, Question
from router.placement.search.score import Score
from router.placement.search.span import regrouped
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import SearchResult

SEARCH_S = 5.0


@dataclass(frozen=True, slots=True)
class Shift:
    """A load that shifts, and what serves it.

    ``lengths``: of prompts and answers in tokens, by service. ``rates``: requests a second, by phase and service.
    ``fleets``: by contender. ``profile``: of an engine. ``changed``: the words in notes of changes, and their heading.
    """

    services: tuple[ServiceSpec, ...]
    lengths: Mapping[str, tuple[Moments, Moments]]
    rates: Sequence[Mapping[str, float]]
    fleets: Mapping[str, tuple[Sequence[EngineSpec], PlacementSpec | None]]
    profile: Callable[[EngineSpec], Profile]
    search: Callable[[Question], SearchResult]
    changed: tuple[str, str]
    coasts: bool
    phase_s: float

    def requests(self, seed: int, phase_s: float) -> list[TraceRequest]:
        """Draw Poisson arrivals."""
        drawn = []
        for phase, rates in enumerate(self.rates):
            for name, rate in rates.items():
                arrivals = ServiceTraffic(rate, *self.lengths[name]).arrivals(phase_s, Random(f"{seed}/{phase}/{name}"))
                drawn += [
                    TraceRequest(phase * phase_s + at_s, prompt, answer, service=name)
                    for at_s, prompt, answer in arrivals
                ]
        return sorted(drawn, key=lambda request: request.at_s)

    def topology(self, contender: str) -> Topology:
        engines, placement = self.fleets[contender]
        policy, timing = PolicySpec("join_shortest_queue"), Timing(heartbeat_s=1.0, lease_s=5.0)
        return make_fleet("plans", self.services, engines, policy, timing=timing, placement=placement)


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender made of the requests of a seed. ``phases``: promises kept in each. ``num_plans``: that the
    daemon carried out. ``num_changes``: swaps, or devices that were regrouped.
    """

    contender: str
    seed: int
    kept: float
    phases: tuple[float, ...]
    latency_s: float
    p99_s: float
    num_lost: int
    num_plans: int
    num_changes: int

    def cells(self) -> Iterator[str]:
        yield from (str(self.seed), self.contender, f"{100 * self.kept:.1f}")
        yield " ".join(f"{100 * kept:.0f}" for kept in self.phases)
        yield from (f"{self.latency_s:.1f}", f"{self.p99_s:.1f}")
        yield from map(str, (self.num_lost, self.num_plans, self.num_changes))


def run(shift: Shift, contender: str, seed: int, phase_s: float) -> Run:
    notes: list[str] = []
    topology = shift.topology(contender)
    simulation = make_simulation(
        topology,
        {spec.id: shift.profile(spec) for spec in topology.engines},
        seed,
        coasts=shift.coasts,
        search=shift.search,
        on_note=lambda _, note: notes.append(note.line),
    )
    records = serve(simulation, shift.services[0].name, shift.requests(seed, phase_s))
    latencies = [one.e2e_s for one in records if one.outcome is Outcome.FINISHED and one.e2e_s is not None]
    phases = [[one for one in records if one.arrived_s // phase_s == phase] for phase in range(len(shift.rates))]
    return Run(
        contender=contender,
        seed=seed,
        kept=attainment(records),
        phases=tuple(map(attainment, phases)),
        latency_s=fmean(latencies),
        p99_s=percentile(latencies, 99),
        num_lost=len(records) - len(latencies),
        num_plans=sum(line.endswith("is carried out") for line in notes),
        num_changes=sum(shift.changed[0] in line for line in notes),
    )


def answer(question: Question, wanted: Plan, swaps: Sequence[Any] = (), *, is_obstructed: bool = False) -> SearchResult:
    """The plan that is known to be right, without a score."""
    verdict = Verdict.OBSTRUCTED if is_obstructed else Verdict.REPLACE
    verdict = Verdict.KEEP if wanted == question.present else verdict
    return SearchResult(Answer(Proposal(wanted, verdict, Score({}), Score({}), 1, None, tuple(swaps)), {}), SEARCH_S)


# --- services of which an engine holds one ----------------------------------------------------------------------------

LARGE = ("s0", "s1", "s2")
HELD = ("s0", "s0", "s1", "s2")  # by engine, at first: s0 is busy
LARGE_PRESET = "a100-llama2-70b-tp4"
LARGE_PROFILE = load_preset(LARGE_PRESET)
LARGE_BYTES = LARGE_PROFILE.weight_bytes
STAYS, BESIDE, SWAPS = "plan for the first phase kept", "daemon, loads beside", "daemon, swaps"


def holders(staging_bytes: int) -> list[EngineSpec]:
    """Memory for weights is a device's, less what KV has in the profile: it holds one model."""
    sizes: dict[str, Any] = {"block_size": 64, "max_running": 128, "chunk_tokens": 2048}
    sizes |= {"weight_memory_bytes": LARGE_BYTES * 5 // 4, "staging_memory_bytes": staging_bytes}
    return [
        modelled_engine(f"engine-{number}", service, LARGE_PRESET, scheduling=Scheduling.DB, **sizes)
        for number, service in enumerate(HELD)
    ]


def two_for_the_busy(question: Question) -> SearchResult:
    """Two engines for the service that is asked for most, and one for each other, if the engines can get there."""
    present = plan = question.present
    busy = max(LARGE, key=question.asked.rate)
    held = [group.services[0] for group in present.groups]
    [spare] = [name for name in LARGE if held.count(name) > 1]
    if busy != spare:
        groups, number = list(present.groups), held.index(spare)
        groups[number] = groups[number].holding([busy])
        plan = Plan(tuple(groups))
    obstacles = question.obstacles
    is_obstructed = obstacles.against(present, plan) is not None
    return answer(question, plan, obstacles.swaps(present, plan), is_obstructed=is_obstructed)


WHEN_MOVING = PlacementSpec(interval_s=30.0, shortest_s=20.0, longest_s=60.0)
MOVING: Final = Shift(
    services=tuple(ServiceSpec(name, "model", Slo(5.0, 0.15)) for name in LARGE),
    lengths=dict.fromkeys(LARGE, (Moments(1500, 800), Moments(150, 80))),
    rates=[{name: 3.6 if name == busy else 0.6 for name in LARGE} for busy in LARGE],
    fleets={STAYS: (holders(0), None), BESIDE: (holders(0), WHEN_MOVING), SWAPS: (holders(LARGE_BYTES), WHEN_MOVING)},
    profile=lambda _: SharedProfile(
        dict.fromkeys(LARGE, LARGE_PROFILE), LARGE_PROFILE.kv_memory_bytes, LARGE_PROFILE.num_devices
    ),
    search=two_for_the_busy,
    changed=(": swapping", "swaps"),
    coasts=False,
    phase_s=120.0,
)


# --- devices that change hands ----------------------------------------------------------------------------------------

LONG, SHORT = "long", "short"
PROFILES = {1: "a100-llama3-8b-tp1", 2: "a100-llama3-8b-tp2"}  # by devices
NUM_DEVICES = 4
ONES, TWOS, REGROUPS = "engines of one device", "engines of two devices", "engines of either"


def engine(name: str, num_devices: int, spans: tuple[str, ...] = ()) -> EngineSpec:
    sizes: dict[str, Any] = {"block_size": 64, "max_running": 64, "chunk_tokens": 2048}
    own: dict[str, Any] = {"services": (LONG, SHORT), "spans": spans, "is_standby": bool(spans)}
    return modelled_engine(name, LONG, PROFILES[num_devices], **own, **sizes)


def size_for_the_busy(question: Question) -> SearchResult:
    """Engines of two devices where the service with long prompts is busy, else of one, if they can be had."""
    wanted, is_long = question.present, question.asked.rate(LONG) > 1.0
    for span in question.cluster.spans:
        old, new = (span.spanned, (span.spanning,)) if is_long else ((span.spanning,), span.spanned)
        if old[0].id in wanted.engines:
            wanted = regrouped(wanted, old, [group.holding([LONG, SHORT]) for group in new])
    return answer(question, wanted)


SINGLES = [engine(f"one-{number}", 1) for number in range(NUM_DEVICES)]
PAIRS = [(one.id, other.id) for one, other in zip(SINGLES[::2], SINGLES[1::2], strict=True)]
WHEN_REGROUPING = PlacementSpec(interval_s=20.0, shortest_s=10.0, longest_s=60.0)
REGROUPING: Final = Shift(
    services=(ServiceSpec(LONG, "model", Slo(1.0, 0.02)), ServiceSpec(SHORT, "model", Slo(1.0, 0.1))),
    lengths={LONG: (Moments(1500, 500), Moments(200, 80)), SHORT: (Moments(150, 80), Moments(1200, 300))},
    rates=({LONG: 0.1, SHORT: 10.0}, {LONG: 7.0, SHORT: 0.5}, {LONG: 0.1, SHORT: 10.0}),
    fleets={
        ONES: (SINGLES, WHEN_REGROUPING),
        TWOS: ([engine(f"two-{number}", 2) for number in range(len(PAIRS))], WHEN_REGROUPING),
        REGROUPS: (
            [*SINGLES, *(engine(f"two-{number}", 2, spans=pair) for number, pair in enumerate(PAIRS))],
            WHEN_REGROUPING,
        ),
    },
    profile=lambda spec: load_preset(str(spec.profile)),
    search=size_for_the_busy,
    changed=(": regrouping: ", "regrouped"),
    coasts=True,
    phase_s=360.0,
)
SHIFTS: Final[Mapping[str, Shift]] = {"moving": MOVING, "regrouping": REGROUPING}


def main() -> None:
    parser = script_parser("bench.placement.plans", __doc__, seeds=3, json=True)
    parser.add_argument("shift", choices=SHIFTS)
    parser.add_argument("--phase", type=float, metavar="S", help="seconds of a phase (default: 120 or 360)")
    options = parser.parse_args()
    shift = SHIFTS[options.shift]
    phase_s = options.phase or shift.phase_s
    runs = [run(shift, contender, seed, phase_s) for seed in range(options.seeds) for contender in shift.fleets]
    columns = "kept, %", "by phase", "mean, s", "P99, s", "lost", "plans", shift.changed[1]
    print_table("promises kept, and latency", ("seed", ""), columns, (one.cells() for one in runs))
    write_json(options.json, runs)


if __name__ == "__main__":
    main()
