"""Role flips under a load that shifts: engines that change roles beside engines that keep them.

    python -m bench.placement.role_flips [--seeds 2] [--phase 120] [--jobs N]

In simulation: eight engines with Llama-2-70B on four A100s each, half of them prefill engines to begin with. First come
long prompts with short answers, then short prompts with long answers, then the former again. Tropical and elastic run
with and without `flips`, and Tropical with other splits that stay as they are: what flips bring is one thing, what a
better split would bring another. With a TPOT SLO of 40 ms, about 90 answers at a time are the most; else an engine
would take some 400, and a simulation would be of little but decode steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product, takewhile
from random import Random

from bench.harness.arguments import script_parser
from bench.harness.tables import print_table
from bench.simulated import attainment, make_fleet, make_simulation, modelled_engines, run_cases, serve
from engines.costs.named_profiles import load_profile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from simulation.cluster import Simulation
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.reports.timeline import Timeline

PROFILE = "a100-llama2-70b-tp4"
NUM_ENGINES = 8
TTFT_FACTOR, TPOT_SLO_S, PROMISE = 5.0, 0.04, 0.9


@dataclass(frozen=True, slots=True)
class Phase:
    """Requests that arrive as a Poisson process. Lengths in tokens, uniform between two bounds."""

    name: str
    rate: float  # a second
    prompt: tuple[int, int]
    answer: tuple[int, int]

    def requests(self, since_s: float, span_s: float, random: Random) -> list[TraceRequest]:
        times = takewhile(lambda time: time < span_s, Arrivals(self.rate).times(random))
        return [
            TraceRequest(since_s + time, random.randint(*self.prompt), random.randint(*self.answer)) for time in times
        ]


READ = Phase("long prompts", 10.5, (2000, 4000), (20, 60))
WRITE = Phase("long answers", 30.0, (50, 150), (200, 600))
PHASES = (READ, WRITE, READ)


@dataclass(frozen=True, slots=True)
class Contender:
    policy: str
    flips: bool = False
    num_prefill: int = NUM_ENGINES // 2

    @property
    def name(self) -> str:
        split = f"{self.num_prefill} + {NUM_ENGINES - self.num_prefill}"
        return f"{self.policy}, flips from {split}" if self.flips else f"{self.policy}, {split}"


CONTENDERS = (
    Contender("tropical"),
    Contender("tropical", flips=True),
    Contender("elastic"),
    Contender("elastic", flips=True),
    *(Contender("tropical", num_prefill=count) for count in (2, 3, 5)),
)


@dataclass(frozen=True, slots=True)
class Case:
    contender: Contender
    phase_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    """Shares of the requests that met both SLOs: of all, and of those that arrived in each phase."""

    attainment: float
    by_phase: Sequence[float]
    goodput: float  # requests a second
    num_flips: int


def run_case(case: Case) -> Result:
    timeline = Timeline(Simulation.origin_s)
    topology, profile = make_topology(case.contender), load_profile(PROFILE)
    simulation = make_simulation(topology, profile, case.seed, slo=SloRule(TTFT_FACTOR), timeline=timeline)
    random = Random(f"{case.seed}/load")
    spans = [phase.requests(number * case.phase_s, case.phase_s, random) for number, phase in enumerate(PHASES)]
    records = serve(simulation, "model", chain(*spans))
    by_phase = [
        attainment([record for record in records if int(record.arrived_s // case.phase_s) == number])
        for number in range(len(PHASES))
    ]
    goodput = sum(record.meets_slo for record in records) / (case.phase_s * len(PHASES))
    num_flips = sum(mark.event in set(Role) for lane in timeline.lanes.values() for mark in lane.marks)
    return Result(attainment(records), by_phase, goodput, num_flips)


def make_topology(contender: Contender) -> Topology:
    """Eight engines alike, but for their roles."""
    sizes = {"num_prefill": contender.num_prefill, "max_running": 512, "chunk_tokens": 1024}
    engines = modelled_engines(NUM_ENGINES, "model", PROFILE, **sizes)
    service = ServiceSpec("model", PROFILE, Slo(1.0, TPOT_SLO_S, PROMISE))
    return make_fleet("flips", service, engines, PolicySpec(contender.policy, {"flips": contender.flips}))


def main() -> None:
    parser = script_parser("bench.placement.role_flips", __doc__, seeds=2, jobs=True)
    parser.add_argument("--phase", type=float, default=120.0, metavar="S", help="seconds of a phase (default: 120)")
    options = parser.parse_args()
    cases = [Case(contender, options.phase, seed) for seed, contender in product(range(options.seeds), CONTENDERS)]
    numbers = ("seed", *(phase.name for phase in PHASES), "all", "goodput", "flips")
    rows = [cells(*found) for found in run_cases(run_case, cases, options.jobs).items()]
    print_table("both SLOs met, % of requests, by phase", ("policy, prefill + multiplexing",), numbers, rows)


def cells(case: Case, result: Result) -> list[str]:
    shares = (f"{100 * share:.1f}" for share in (*result.by_phase, result.attainment))
    flips = str(result.num_flips) if case.contender.flips else ""
    return [case.contender.name, str(case.seed), *shares, f"{result.goodput:.2f}", flips]


if __name__ == "__main__":
    main()
