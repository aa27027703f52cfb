"""Slices with real processes and the default model: static batches, whole and sliced, beside continuous ones.

    python -m bench.papers.scls.live [--backends torch transformers] [--requests 40] [--rate 2]
        [--memory 32MiB]

Two engines, one thread each. SLS: static batches of whole requests, in turns. SCLS: static batches of slices. Both are
run with each kind of engine that is asked for, torch engines and transformers' `generate`. ILS: continuous batching on
torch engines. ILS with slices: the same with `slice_tokens`. The same requests go to one mesh after the other, and
answers are compared: greedy ones must be the same. KV memory is small, so that it matters. Prompts have 8 to 64 tokens,
answers up to 128 (median 24, log-normal).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from bench.live.http_load import Answer, Sending
from bench.live.lengths import Bounds
from bench.live.mesh import LiveMesh
from bench.live.ports import free_port
from bench.live.sharing import TOKEN_IDS
from bench.models.references import DEFAULT_MODEL
from bench.papers.live import serve_in_turn, total
from bench.simulated import percentile

PROMPTS, ANSWERS = (8, 64), Bounds(2, 24, 128, 1.0)
BATCH = 4  # requests of a static batch without slices
SLICE_TOKENS = 16
TOPOLOGY = """
[services.smollm2]
model = "{model}"
ttft_ms = {ttft_ms}
tpot_ms = 3600000
[engines.worker]
count = 2
kv_memory = "{memory}"
max_waiting = 4096
{engine}
[gateways.gateway]
port = {port}
[policy]
{policy}
"""
PATIENT_MS, HASTY_MS = 3_600_000, 2_000
STATIC = {"torch": 'scheduling = "static"\nchunk_tokens = 65536', "transformers": 'backend = "transformers"'}
TURNS = 'name = "round_robin"'


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    engine: str
    policy: str
    ttft_ms: int = PATIENT_MS


def contenders(backends: Sequence[str]) -> list[Contender]:
    sliced = f'name = "slices"\nslice_tokens = {SLICE_TOKENS}\ninterval_s = 1'
    static = [
        Contender(f"{name}, {backend}", f"{STATIC[backend]}\nmax_running = {batch}", policy)
        for backend in backends
        for name, batch, policy in (("SLS", BATCH, TURNS), ("SCLS", 256, sliced))
    ]
    return [
        *static,
        Contender("ILS", "", TURNS),
        Contender("ILS with slices", f'slice_tokens = {SLICE_TOKENS}\noffload_memory = "1GiB"', TURNS, HASTY_MS),
    ]


def draw(count: int, rate: float) -> list[Sending]:
    """Draw the requests, the same for every contender."""
    random, at_s, sendings = Random("0/slices"), 0.0, list[Sending]()
    for _ in range(count):
        at_s += random.expovariate(rate)
        prompt = random.choices(TOKEN_IDS, k=random.randint(*PROMPTS))
        sendings.append(Sending(at_s, prompt, ANSWERS.draw(random)))
    return sendings


def topology_text(one: Contender, memory: str) -> str:
    return TOPOLOGY.format(
        model=DEFAULT_MODEL, ttft_ms=one.ttft_ms, memory=memory, engine=one.engine, port=free_port(), policy=one.policy
    )


def cells(mesh: LiveMesh, answers: Sequence[Answer], texts: Sequence[str]) -> list[str]:
    """Summarize the answers. ``texts``: what they are to say."""
    times_s = [answer.last_s - answer.sent_s for answer in answers]
    throughput = len(answers) / max(answer.last_s for answer in answers)
    ttft_s = statistics.fmean(answer.first_s - answer.sent_s for answer in answers)
    num_other = sum(answer.text != text for answer, text in zip(answers, texts, strict=True))
    seconds = statistics.fmean(times_s), percentile(times_s, 95), ttft_s
    counts = total(mesh, "preemptions"), total(mesh, "slices_offloaded"), num_other
    return [*(f"{value:.2f}" for value in (throughput, *seconds)), *map(str, counts)]


def main() -> None:
    parser = script_parser("bench.papers.scls.live", __doc__)
    parser.add_argument("--backends", nargs="+", choices=sorted(STATIC), default=["torch"], help="of static batches")
    parser.add_argument("--requests", type=int, default=40, metavar="N")
    parser.add_argument("--rate", type=float, default=2.0, metavar="R", help="requests a second")
    parser.add_argument("--memory", default="32MiB", metavar="SIZE", help="KV memory of an engine")
    options = parser.parse_args()
    sendings, texts = draw(options.requests, options.rate), list[str]()
    topologies = {one.name: topology_text(one, options.memory) for one in contenders(options.backends)}
    columns = ("requests/s", "mean, s", "P95, s", "TTFT mean, s", "preempted", "offloaded", "other answers")
    table = make_table(f"{len(sendings)} requests, {options.rate:g} a second", ("scheduler",), columns)
    for name, mesh, answers in serve_in_turn(topologies, sendings, keeps_text=True):
        texts = texts or [answer.text for answer in answers]
        table.add_row(name, *cells(mesh, answers, texts))
    make_console().print(table)


if __name__ == "__main__":
    main()
