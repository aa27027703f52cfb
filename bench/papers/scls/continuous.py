"""What slices add on top of continuous batching, in simulation: the same engines with and without them.

    python -m bench.papers.scls.continuous [--rates R ...] [--seconds 60] [--seeds 1] [--slices S ...] [--jobs N]
        [--memories "40 GB" "80 GB"]

Engines are Llama-2-13B on A100s of 40 GB (memory is scarce: 12,500 tokens) and of 80 GB (62,600), and get CodeFuse-like
requests (`bench.papers.scls.setting`), dispatched to the least loaded. ``optimistic`` is the engine as it is without
slices: it admits what fits now, and preempts when memory runs out. ``cautious`` admits what fits even if each answer
becomes as long as it may: a slice of 1024 tokens. ``drop`` has slices and no host memory to offload anything in. All
are given the same requests and promise the same. A run lasts until the last request has ended.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.runs import over_seeds, run_cases
from bench.papers.scls import setting
from bench.papers.scls.run import Result, run_case
from bench.papers.scls.setting import CALM, LONGEST, PROFILE, SERVICE, Contender, Kind
from engines.costs.presets import MEMORY_FRACTION
from engines.costs.profiles import EngineProfile, load_profile
from mesh.topology.schema import Scheduling, ServiceSpec, Slo, Topology

NUM_WORKERS = 2
RATES = (5.0, 7.0, 9.0)  # requests a second, of all workers
SLICES = (16, 32, 64, 128)
PROMISE = Slo(ttft_s=2.0, tpot_s=0.06)
MEMORIES = {"40 GB": 40e9, "80 GB": 80e9}  # of an A100


@dataclass(frozen=True, slots=True)
class Case(setting.Case):
    """A case on A100s with so much ``memory``, a key of `MEMORIES`."""

    memory: str = "80 GB"

    def profile(self) -> EngineProfile:
        known = load_profile(PROFILE)
        return replace(known, kv_memory_bytes=int(MEMORY_FRACTION * MEMORIES[self.memory]) - known.weight_bytes)

    def topology(self) -> Topology:
        service, timing = ServiceSpec(SERVICE, PROFILE, PROMISE), replace(CALM, heartbeat_s=0.5, lease_s=5.0)
        return replace(setting.Case.topology(self), services=(service,), timing=timing)


def make_contenders(slices: Sequence[int]) -> list[Contender]:
    plain = Contender("optimistic", Scheduling.SLO, "least_loaded", chunk_tokens=512)
    return [
        plain,
        replace(plain, name="cautious", slice_tokens=LONGEST),
        *(replace(plain, name=f"slices of {tokens}", slice_tokens=tokens) for tokens in slices),
        replace(plain, name=f"slices of {slices[0]}, drop", slice_tokens=slices[0], offload_bytes=0),
    ]


def main() -> None:
    options = _parse()
    cases = [
        Case(Kind.DS, contender, rate, options.seconds, seed, NUM_WORKERS, memory)
        for memory in options.memories
        for rate in options.rates
        for contender in make_contenders(options.slices)
        for seed in range(options.seeds)
    ]
    results = over_seeds(run_cases(run_case, cases, options.jobs))
    for memory in options.memories:
        of_memory = {case: result for case, result in results.items() if case.memory == memory}
        make_console(160).print(_table(memory, of_memory))


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.scls.continuous", __doc__)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of arrivals (default: 60)")
    add_seeds(parser, 1)
    parser.add_argument("--slices", nargs="+", type=int, default=SLICES, metavar="S", help="tokens of a slice")
    parser.add_argument("--memories", nargs="+", choices=MEMORIES, default=[*MEMORIES], help="of an A100")
    add_jobs(parser)
    return parser.parse_args()


def _table(memory: str, results: Mapping[Case, Result]) -> Table:
    latencies = ("throughput", "running", "mean, s", "P95, s", "P99, s", "TTFT P99, s", "TPOT P99, ms", "attained")
    table = make_table(
        f"A100s of {memory}; what was preempted, kept, moved and offloaded: times a request",
        ("req/s", "engine"),
        (*latencies, "preempted", "kept", "moved", "offloaded"),
    )
    for case, one in results.items():
        times = one.throughput, one.running, one.mean_s, one.p95_s, one.p99_s, one.ttft_p99_s
        table.add_row(
            f"{case.rate:g}",
            case.contender.name,
            *(f"{value:.2f}" for value in times),
            f"{1e3 * one.tpot_p99_s:.0f}",
            f"{100 * one.attained:.1f} %",
            *(f"{value:.2f}" for value in (one.preempted, one.kept, one.moved, one.offloaded)),
        )
    return table


if __name__ == "__main__":
    main()
