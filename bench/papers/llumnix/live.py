"""Llumnix's comparison with real processes, small: HTTP, gateways, engines and migrations are real, steps modelled.

    python -m bench.papers.llumnix.live [--rate 3.4] [--duration 150] [--json FILE]

Engines take the time of an A10 with Llama-2-7B instead of computing (`backend = "simulated"`), but hold, move and lose
their KV blocks as any do. The same requests go, one after the other, to a mesh that dispatches as INFaaS does, to one
that dispatches by freeness, and to one whose engines move requests besides. Beside each stands what the simulator says.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.http_load import Answer
from bench.live.mesh import LiveMesh
from bench.live.ports import free_port
from bench.live.serving import latency_of
from bench.models.references import DEFAULT_MODEL
from bench.papers.live import sendings_of, serve_in_turn, total
from bench.papers.llumnix.run import mean_and_p99
from bench.simulated import make_simulation, serve
from engines.costs.profiles import load_profile
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths

PROFILE = "a10-llama2-7b-tp1"
NUM_ENGINES = 4
MOST_TOKENS = 1500  # of a prompt, and of an answer, so that the last one ends some time
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


class Outcome(msgspec.Struct, frozen=True):
    """Seconds to the first token, and from token to token after it, of all requests: their mean and their P99."""

    ttft_s: tuple[float, float]
    tpot_s: tuple[float, float]
    num_preempted: int
    num_migrated: int


def draw(rate: float, duration_s: float, seed: int) -> list[TraceRequest]:
    """Draw requests with ShareGPT's lengths as the paper has them, cut."""
    lengths = described_lengths(f"{PREFIX}sharegpt")
    requests = synthesize(lengths, Arrivals(rate), duration_s, Random(f"{seed}/trace"))
    return [
        replace(one, num_input=min(one.num_input, MOST_TOKENS), num_output=max(2, min(one.num_output, MOST_TOKENS)))
        for one in requests
    ]


def measured(mesh: LiveMesh, answers: Sequence[Answer], trace: Sequence[TraceRequest]) -> Outcome:
    latencies = [latency_of(answer, one.num_output) for answer, one in zip(answers, trace, strict=True)]
    return Outcome(
        mean_and_p99(one.ttft_s for one in latencies),
        mean_and_p99(one.tpot_s for one in latencies),
        total(mesh, "preemptions"),
        total(mesh, "migrations"),
    )


def simulated(mesh: LiveMesh, trace: Sequence[TraceRequest], seed: int) -> Outcome:
    simulation = make_simulation(mesh.topology, load_profile(PROFILE), seed, coasts=True)
    records = serve(simulation, mesh.topology.services[0].name, trace)
    statuses = [engine.core.status(0.0) for engine in simulation.engines.values()]
    return Outcome(
        mean_and_p99(record.ttft_s for record in records),
        mean_and_p99(record.tpot_s for record in records),
        sum(status.preemptions_total for status in statuses),
        sum(status.migrations_total for status in statuses),
    )


def topology_text(rest: str) -> str:
    return TOPOLOGY.format(model=DEFAULT_MODEL, profile=PROFILE, engines=NUM_ENGINES, port=free_port(), rest=rest)


def main() -> None:
    parser = script_parser("bench.papers.llumnix.live", __doc__)
    parser.add_argument("--rate", type=float, default=3.4, help="requests a second")
    parser.add_argument("--duration", type=float, default=150.0, help="seconds in which requests arrive")
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser)
    options = parser.parse_args()
    trace = draw(options.rate, options.duration, options.seed)
    topologies = {name: topology_text(rest) for name, rest in CONTENDERS.items()}
    outcomes = {
        name: (measured(mesh, answers, trace), simulated(mesh, trace, options.seed))
        for name, mesh, answers in serve_in_turn(topologies, sendings_of(trace, Random(f"{options.seed}/tokens")))
    }
    columns = ("TTFT mean, s", "p99", "a token, ms", "p99", "preempted", "migrated")
    table = make_table(f"{len(trace)} requests, {options.rate:g} a second", ("measured | simulated",), columns)
    for name, sides in outcomes.items():
        table.add_row(name, *(" | ".join(cells) for cells in zip(*map(_cells, sides), strict=True)))
    make_console().print(table)
    if options.json is not None:
        write_json(options.json, outcomes)


def _cells(one: Outcome) -> list[str]:
    times = [f"{value:.2f}" for value in one.ttft_s] + [f"{1e3 * value:.1f}" for value in one.tpot_s]
    return [*times, str(one.num_preempted), str(one.num_migrated)]


if __name__ == "__main__":
    main()
