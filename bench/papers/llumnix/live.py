"""Llumnix's comparison with real processes, small: HTTP, gateways, engines and migrations are real, steps modelled.

    python -m bench.papers.llumnix.live [--lengths sharegpt] [--rate 3.4] [--duration 150] [--engines 4] [--json FILE]

Engines take the time of an A10 with Llama-2-7B instead of computing (`backend = "simulated"`), but hold, move and lose
their KV blocks as any do. The same requests go, one after the other, to a mesh that dispatches as INFaaS does, to one
that dispatches by freeness, and to one whose engines move requests besides. Beside each stands what the simulator says.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import Progress

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import make_console, make_table
from bench.live.http_load import Answer, Sending
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.ports import free_port
from bench.live.sharing import TOKEN_IDS
from bench.models.references import DEFAULT_MODEL
from engines.costs.profiles import load_profile
from mesh.topology.parse import load
from router.history.records import Record
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.loads.workload_lengths import PREFIX, described_lengths
from simulation.quiet import quiet_engines

PROFILE = "a10-llama2-7b-tp1"
OK = 200
CONTENDERS = {
    "infaas": '[policy]\nname = "infaas"',
    "llumnix, dispatch only": '[policy]\nname = "llumnix"',
    "llumnix": '[policy]\nname = "llumnix"\n[rescheduling]',
}
TOPOLOGY = """
[services.llama2-7b]
model = "{model}"
ttft_ms = 3600000
tpot_ms = 3600000
max_priority = 1
[engines.engine]
count = {engines}
role = "multiplex"
backend = "simulated"
profile = "{profile}"
max_running = 256
max_waiting = 4096
chunk_tokens = 8192
[gateways.gateway]
port = {port}
max_requests = 4096
{rest}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds to the first token, and from token to token after it, of all requests."""

    ttft_mean_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p99_s: float
    num_preempted: int
    num_migrated: int

    @classmethod
    def of(cls, ttft_s: Sequence[float], tpot_s: Sequence[float], num_preempted: int, num_migrated: int) -> "Outcome":
        return cls(
            statistics.fmean(ttft_s), _p99(ttft_s), statistics.fmean(tpot_s), _p99(tpot_s), num_preempted, num_migrated
        )


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[round(0.99 * (len(values) - 1))]


def draw(options: argparse.Namespace) -> list[TraceRequest]:
    """Lengths of the paper, cut so that the last answer ends some time."""
    lengths = described_lengths(PREFIX + options.lengths)
    arrivals = Arrivals(options.rate)
    requests = synthesize(lengths, arrivals, options.duration, Random(f"{options.seed}/trace"))
    most = options.most_tokens
    return [
        replace(one, num_input=min(one.num_input, most), num_output=max(2, min(one.num_output, most)))
        for one in requests
    ]


def serve(mesh: LiveMesh, trace: Sequence[TraceRequest], seed: int, progress: Progress) -> Outcome:
    """Raise RuntimeError if one request is not served in full."""
    random = Random(f"{seed}/tokens")
    sendings = [Sending(one.at_s, random.choices(TOKEN_IDS, k=one.num_input), one.num_output) for one in trace]
    task = progress.add_task(mesh.topology.policy.name, total=len(sendings))
    answers = mesh.answers(sendings, lambda: progress.advance(task))
    failed = [answer for answer in answers if answer.status != OK]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(answers)} requests failed, the first with {failed[0].status}")
    engines = mesh.status()["engines"]
    return Outcome.of(
        [answer.first_s - answer.sent_s for answer in answers],
        [_tpot_s(answer, one) for answer, one in zip(answers, trace, strict=True)],
        sum(engine["preemptions"] for engine in engines),
        sum(engine["migrations"] for engine in engines),
    )


def _tpot_s(answer: Answer, request: TraceRequest) -> float:
    return (answer.last_s - answer.first_s) / (request.num_output - 1)


def simulate(mesh: LiveMesh, trace: Sequence[TraceRequest], seed: int) -> Outcome:
    profiles = {engine.id: load_profile(PROFILE) for engine in mesh.topology.engines}
    records: list[Record] = []
    with quiet_engines():
        simulation = Simulation(mesh.topology, profiles, seed=seed, physics=Physics(), slo=SloRule(), coasts=True)
        simulation.run(mesh.topology.services[0].name, trace, records.append)
    statuses = [engine.core.status(0.0) for engine in simulation.engines.values()]
    return Outcome.of(
        [record.ttft_s for record in records if record.ttft_s is not None],
        [record.tpot_s for record in records if record.tpot_s is not None],
        sum(status.preemptions_total for status in statuses),
        sum(status.migrations_total for status in statuses),
    )


def report(console: Console, outcomes: dict[str, tuple[Outcome, Outcome]], title: str) -> None:
    columns = ("TTFT mean, s", "p99", "a token, ms", "p99", "preempted", "migrated")
    table = make_table(title, ("measured | simulated",), columns)
    for name, (live, told) in outcomes.items():
        table.add_row(
            name,
            f"{live.ttft_mean_s:.2f} | {told.ttft_mean_s:.2f}",
            f"{live.ttft_p99_s:.2f} | {told.ttft_p99_s:.2f}",
            f"{1e3 * live.tpot_mean_s:.1f} | {1e3 * told.tpot_mean_s:.1f}",
            f"{1e3 * live.tpot_p99_s:.1f} | {1e3 * told.tpot_p99_s:.1f}",
            f"{live.num_preempted} | {told.num_preempted}",
            f"{live.num_migrated} | {told.num_migrated}",
        )
    console.print(table)


def main() -> None:
    parser = script_parser("bench.papers.llumnix.live", __doc__)
    parser.add_argument("--lengths", default="sharegpt", help="as in `mesh simulate --lengths llumnix:NAME`")
    parser.add_argument("--most-tokens", type=int, default=1500, help="of a prompt, and of an answer")
    parser.add_argument("--rate", type=float, default=3.4, help="requests a second")
    parser.add_argument("--duration", type=float, default=150.0, help="seconds in which requests arrive")
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulate-only", action="store_true", help="start no mesh, to find a rate")
    add_json(parser)
    options = parser.parse_args()
    trace, console = draw(options), make_console()
    outcomes: dict[str, tuple[Outcome, Outcome]] = {}
    with tempfile.TemporaryDirectory() as folder, progress_bar() as progress:
        for name, rest in CONTENDERS.items():
            path = Path(folder) / "topology.toml"
            path.write_text(
                TOPOLOGY.format(
                    model=DEFAULT_MODEL, profile=PROFILE, engines=options.engines, port=free_port(), rest=rest
                )
            )
            idle = LiveMesh(load(path), 0, {})
            told = simulate(idle, trace, options.seed)
            with nullcontext(idle) if options.simulate_only else live_mesh(path) as mesh:
                live = told if options.simulate_only else serve(mesh, trace, options.seed, progress)
            outcomes[name] = live, told
    report(
        console,
        outcomes,
        f"{len(trace)} requests, {options.lengths}, {options.rate:g} a second, {options.engines} engines",
    )
    if options.json is not None:
        sides = {name: {"measured": live, "simulated": told} for name, (live, told) in outcomes.items()}
        write_json(options.json, sides)


if __name__ == "__main__":
    main()
