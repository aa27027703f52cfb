"""Devices that become one engine or two, as the load wants: engines that may change beside those that stay.

    python -m bench.placement.regrouping [--seeds 3] [--phase 360] [--json FILE]

Simulated: four A100s serve two services of Llama-3-8B's size, each on engines of one device, or of two in tensor
parallelism. One service has long prompts and promises its tokens fast, which an engine of one device cannot keep beside
a prompt; the other has many short requests, for which two engines of one device have more room than one of two. Each of
them is the busy one in turn, in three phases. The search is one that knows which service is busy and what that wants;
all that decides when, and carries it out, is the product's.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.harness.arguments import add_json, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import MANY, attainment, make_simulation, percentile, serve
from engines.costs.presets import load_preset
from mesh.topology.schema import EngineSpec, GatewaySpec, PlacementSpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from router.history.records import Outcome
from router.placement.change.replacement import Proposal, Verdict
from router.placement.observe.traffic import Moments, ServiceTraffic
from router.placement.search.question import Answer, Question
from router.placement.search.score import Score
from router.placement.search.span import regrouped
from simulation.engines.shared_profiles import Profile
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import SearchResult

PROFILES = {1: "a100-llama3-8b-tp1", 2: "a100-llama3-8b-tp2"}
NUM_DEVICES = 4
SEARCH_S = 5.0
LONG, SHORT = "long", "short"
SERVICES = (ServiceSpec(LONG, "model", Slo(1.0, 0.02)), ServiceSpec(SHORT, "model", Slo(1.0, 0.1)))
LENGTHS = {LONG: (Moments(1500, 500), Moments(200, 80)), SHORT: (Moments(150, 80), Moments(1200, 300))}
RATES = ({LONG: 0.1, SHORT: 10.0}, {LONG: 7.0, SHORT: 0.5}, {LONG: 0.1, SHORT: 10.0})  # requests a second, by phase
ONES, TWOS, REGROUPS = "engines of one device", "engines of two devices", "engines of either"


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender made of the requests of a seed. ``phases``: promises kept in each. ``num_regroupings``: of
    devices.
    """

    contender: str
    seed: int
    kept: float
    phases: tuple[float, ...]
    p99_s: float
    num_lost: int
    num_plans: int
    num_regroupings: int

    def cells(self) -> Iterator[str]:
        yield from (str(self.seed), self.contender, f"{100 * self.kept:.1f}")
        yield " ".join(f"{100 * kept:.0f}" for kept in self.phases)
        yield f"{self.p99_s:.1f}"
        yield from map(str, (self.num_lost, self.num_plans, self.num_regroupings))


def trace(seed: int, phase_s: float) -> list[TraceRequest]:
    """Draw Poisson arrivals; each service is the busy one in turn."""
    requests = []
    for phase, rates in enumerate(RATES):
        for name, rate in rates.items():
            arrivals = ServiceTraffic(rate, *LENGTHS[name]).arrivals(phase_s, Random(f"{seed}/{phase}/{name}"))
            requests += [
                TraceRequest(phase * phase_s + at_s, prompt, answer, service=name) for at_s, prompt, answer in arrivals
            ]
    return sorted(requests, key=lambda request: request.at_s)


def topology(contender: str) -> Topology:
    ones = [_engine(f"one-{number}", 1) for number in range(NUM_DEVICES)]
    twos = [_engine(f"two-{number}", 2) for number in range(NUM_DEVICES // 2)]
    if contender == REGROUPS:
        pairs = [(ones[2 * number].id, ones[2 * number + 1].id) for number in range(len(twos))]
        twos = [_engine(two.id, 2, spans=pair) for two, pair in zip(twos, pairs, strict=True)]
    return Topology(
        "regrouping",
        Path("regrouping"),
        SERVICES,
        tuple({ONES: ones, TWOS: twos, REGROUPS: [*ones, *twos]}[contender]),
        (GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY),),
        policy=PolicySpec("join_shortest_queue"),
        timing=Timing(heartbeat_s=1.0, lease_s=5.0),
        placement=PlacementSpec(interval_s=20.0, shortest_s=10.0, longest_s=60.0),
    )


def _engine(name: str, num_devices: int, spans: tuple[str, ...] = ()) -> EngineSpec:
    return EngineSpec(
        name,
        Role.MULTIPLEX,
        tuple(service.name for service in SERVICES),
        profile=PROFILES[num_devices],
        block_size=64,
        max_running=64,
        max_waiting=MANY,
        chunk_tokens=2048,
        spans=spans,
        is_standby=bool(spans),
    )


def known_plan(question: Question) -> SearchResult:
    """Engines of two devices where the service with long prompts is busy, else of one, if they can be had."""
    wanted, names = question.present, [service.name for service in SERVICES]
    is_long = question.asked.rate(LONG) > 1.0
    for span in question.cluster.spans:
        old, new = (span.spanned, (span.spanning,)) if is_long else ((span.spanning,), span.spanned)
        if old[0].id in wanted.engines:
            wanted = regrouped(wanted, old, [group.holding(names) for group in new])
    verdict = Verdict.KEEP if wanted == question.present else Verdict.REPLACE
    return SearchResult(Answer(Proposal(wanted, verdict, Score({}), Score({}), 0), {}), SEARCH_S)


def run(contender: str, seed: int, phase_s: float) -> Run:
    notes: list[str] = []
    what = topology(contender)
    profiles: dict[str, Profile] = {spec.id: load_preset(str(spec.profile)) for spec in what.engines}
    simulation = make_simulation(
        what,
        profiles,
        seed,
        coasts=True,
        search=known_plan,
        on_note=lambda _, note: notes.append(note.line),
    )
    records = serve(simulation, LONG, trace(seed, phase_s))
    finished = [one.e2e_s for one in records if one.outcome is Outcome.FINISHED and one.e2e_s is not None]
    phases = [[one for one in records if one.arrived_s // phase_s == phase] for phase in range(len(RATES))]
    return Run(
        contender,
        seed,
        attainment(records),
        tuple(map(attainment, phases)),
        percentile(finished, 99),
        len(records) - len(finished),
        sum(line.endswith("is carried out") for line in notes),
        sum(": regrouping: " in line for line in notes),
    )


def main() -> None:
    parser = script_parser("bench.placement.regrouping", __doc__)
    add_seeds(parser, 3)
    parser.add_argument("--phase", type=float, default=360.0, metavar="S", help="seconds of a phase (default: 360)")
    add_json(parser)
    options: argparse.Namespace = parser.parse_args()
    runs: Sequence[Run] = [
        run(contender, seed, options.phase) for seed in range(options.seeds) for contender in (ONES, TWOS, REGROUPS)
    ]
    columns = "kept, %", "by phase", "P99, s", "lost", "plans", "regrouped"
    print_table("promises kept, and latency", ("seed", ""), columns, (one.cells() for one in runs))
    write_json(options.json, runs)


if __name__ == "__main__":
    main()
