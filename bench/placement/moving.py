"""Services too large for two on an engine: a plan that stays, a daemon that can only load beside, and one that swaps.

    python -m bench.placement.moving [--seeds 3] [--phase 120] [--json FILE]

Simulated: four engines of four A100s each serve one Llama-2-70B of three services, as the weights of two leave an
engine without KV memory. One service is asked for most, and another one in each of three phases; the busy one needs two
engines. The plan at the beginning is for the first phase. The search is one that knows which service is busy, and that
it wants two engines; all that decides when, and carries it out, is the product's. Weights are read from an NVMe drive
for each device, and copied over PCIe 4.0 if they are staged.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from bench.harness.arguments import add_json, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import MANY, attainment, make_simulation, percentile, serve
from engines.costs.presets import load_preset
from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Scheduling,
    ServiceSpec,
    Slo,
    Topology,
)
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from router.history.records import Outcome
from router.placement.change.replacement import Proposal, Verdict
from router.placement.observe.traffic import Moments, ServiceTraffic
from router.placement.search.question import Answer, Question
from router.placement.search.score import Score
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import SearchResult

SERVICES = ("s0", "s1", "s2")
HELD = ("s0", "s0", "s1", "s2")  # by engine, at first: s0 is busy
PROFILE = load_preset("a100-llama2-70b-tp4")
LENGTHS = Moments(1500, 800), Moments(150, 80)  # tokens of prompts and answers
BUSY_RATE, IDLE_RATE = 3.6, 0.6  # requests a second
SLO = Slo(5.0, 0.15)
SEARCH_S = 5.0
STAYS, BESIDE, SWAPS = "plan for the first phase kept", "daemon, loads beside", "daemon, swaps"


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender made of the requests of a seed. ``num_plans``: that the daemon carried out."""

    contender: str
    seed: int
    kept: float
    latency_s: float
    p99_s: float
    num_lost: int
    num_plans: int
    num_swaps: int

    def cells(self) -> Iterator[str]:
        yield from (
            str(self.seed),
            self.contender,
            f"{100 * self.kept:.1f}",
            f"{self.latency_s:.1f}",
            f"{self.p99_s:.1f}",
        )
        yield from map(str, (self.num_lost, self.num_plans, self.num_swaps))


def trace(seed: int, phase_s: float) -> list[TraceRequest]:
    """Draw Poisson arrivals; each service is the busy one in a phase."""
    requests = []
    for phase, busy in enumerate(SERVICES):
        for name in SERVICES:
            rate, random = BUSY_RATE if name == busy else IDLE_RATE, Random(f"{seed}/{phase}/{name}")
            arrivals = ServiceTraffic(rate, *LENGTHS).arrivals(phase_s, random)
            requests += [
                TraceRequest(phase * phase_s + at_s, prompt, answer, service=name) for at_s, prompt, answer in arrivals
            ]
    return sorted(requests, key=lambda request: request.at_s)


def topology(contender: str) -> Topology:
    """Memory for weights is a device's, less what KV has in the profile: it holds one model."""
    sizes: dict[str, Any] = {"block_size": 64, "max_running": 128, "max_waiting": MANY, "chunk_tokens": 2048}
    staging_bytes = PROFILE.weight_bytes if contender == SWAPS else 0
    engines = tuple(
        EngineSpec(
            f"engine-{number}",
            Role.MULTIPLEX,
            (service,),
            scheduling=Scheduling.DB,
            weight_memory_bytes=PROFILE.weight_bytes * 5 // 4,
            staging_memory_bytes=staging_bytes,
            **sizes,
        )
        for number, service in enumerate(HELD)
    )
    return Topology(
        "moving",
        Path("moving"),
        tuple(ServiceSpec(name, "model", SLO) for name in SERVICES),
        engines,
        (GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY),),
        policy=PolicySpec("join_shortest_queue"),
        timing=Timing(heartbeat_s=1.0, lease_s=5.0),
        placement=None if contender == STAYS else PlacementSpec(interval_s=30.0, shortest_s=20.0, longest_s=60.0),
    )


def known_plan(question: Question) -> SearchResult:
    """Two engines for the service that is asked for most, and one for each other, if the engines can get there."""
    present, asked = question.present, question.asked
    busy = max(SERVICES, key=asked.rate)
    held = [group.services[0] for group in present.groups]
    [spare] = [name for name in SERVICES if held.count(name) > 1]
    groups, plan = list(present.groups), present
    if busy != spare:
        number = held.index(spare)
        groups[number] = groups[number].holding([busy])
        plan = replace(present, groups=tuple(groups))
    verdict = Verdict.REPLACE if question.obstacles.against(present, plan) is None else Verdict.OBSTRUCTED
    score, swaps = Score({}), tuple(question.obstacles.swaps(present, plan))
    proposal = Proposal(plan, Verdict.KEEP if plan == present else verdict, score, score, 1, None, swaps)
    return SearchResult(Answer(proposal, {}), SEARCH_S)


def run(contender: str, seed: int, phase_s: float) -> Run:
    notes: list[str] = []
    simulation = make_simulation(
        topology(contender),
        SharedProfile(dict.fromkeys(SERVICES, PROFILE), PROFILE.kv_memory_bytes, PROFILE.num_devices),
        seed,
        search=known_plan,
        on_note=lambda _, note: notes.append(note.line),
    )
    records = serve(simulation, SERVICES[0], trace(seed, phase_s))
    latencies = [one.e2e_s for one in records if one.outcome is Outcome.FINISHED and one.e2e_s is not None]
    return Run(
        contender,
        seed,
        attainment(records),
        fmean(latencies),
        percentile(latencies, 99),
        len(records) - len(latencies),
        sum(line.endswith("is carried out") for line in notes),
        sum(": swapping" in line for line in notes),
    )


def main() -> None:
    parser = script_parser("bench.placement.moving", __doc__)
    add_seeds(parser, 3)
    parser.add_argument("--phase", type=float, default=120.0, metavar="S", help="seconds of a phase (default: 120)")
    add_json(parser)
    options: argparse.Namespace = parser.parse_args()
    runs: Sequence[Run] = [
        run(contender, seed, options.phase) for seed in range(options.seeds) for contender in (STAYS, BESIDE, SWAPS)
    ]
    columns = "kept, %", "mean, s", "P99, s", "lost", "plans", "swaps"
    print_table("promises kept, and latency", ("seed", ""), columns, (one.cells() for one in runs))
    write_json(options.json, runs)


if __name__ == "__main__":
    main()
