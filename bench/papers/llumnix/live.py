"""Llumnix's comparison with real processes, small: HTTP, gateways, engines and migrations are real, steps modelled.

    python -m bench.papers.llumnix.live [--duration 150]

Engines take the time of an A10 with Llama-2-7B instead of computing (`backend = "simulated"`), but hold, move and lose
their KV blocks as any do. The same requests go, one after the other, to a mesh that dispatches as INFaaS does, to one
that dispatches by freeness, and to one whose engines move requests besides.
"""

from dataclasses import replace
from random import Random

from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from bench.live.ports import free_port
from bench.live.serving import latency_of, sendings_of
from bench.models.references import DEFAULT_MODEL
from bench.papers.live import serve_in_turn, total
from bench.papers.llumnix.setting import PROFILE, mean_and_p99
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths

RATE = 3.4  # requests a second
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
[engines.engine]
count = 4
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


def draw(duration_s: float) -> list[TraceRequest]:
    """Draw requests with ShareGPT's lengths as the paper has them, cut."""
    lengths = described_lengths(f"{PREFIX}sharegpt")
    requests = synthesize(lengths, Arrivals(RATE), duration_s, Random("0/trace"))
    return [
        replace(one, num_input=min(one.num_input, MOST_TOKENS), num_output=max(2, min(one.num_output, MOST_TOKENS)))
        for one in requests
    ]


def topologies() -> dict[str, str]:
    """Return the text of each contender's topology."""
    return {
        name: TOPOLOGY.format(model=DEFAULT_MODEL, profile=PROFILE, port=free_port(), rest=rest)
        for name, rest in CONTENDERS.items()
    }


def main() -> None:
    parser = script_parser("bench.papers.llumnix.live", __doc__)
    parser.add_argument("--duration", type=float, default=150.0, help="seconds in which requests arrive")
    trace = draw(parser.parse_args().duration)
    columns = ("TTFT mean, s", "P99", "a token, ms", "P99", "preempted", "migrated")
    table = make_table(f"{len(trace)} requests, {RATE:g} a second", ("",), columns)
    for name, mesh, answers in serve_in_turn(topologies(), sendings_of(trace, Random("0/tokens"))):
        latencies = [latency_of(answer, one.num_output) for answer, one in zip(answers, trace, strict=True)]
        ttft_s, tpot_s = mean_and_p99(one.ttft_s for one in latencies), mean_and_p99(one.tpot_s for one in latencies)
        times = [f"{value:.2f}" for value in ttft_s] + [f"{1e3 * value:.1f}" for value in tpot_s]
        table.add_row(name, *times, str(total(mesh, "preemptions")), str(total(mesh, "migrations")))
    make_console().print(table)


if __name__ == "__main__":
    main()
