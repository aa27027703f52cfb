"""SCLS on this machine, smaller: real processes and a real model, whole requests, slices and continuous batching.

    python -m bench.papers.scls.live [--only NAME ...] [--requests N] [--rate R] [--rounds N] [--out DIR]

Two engines of one thread each serve the same requests over HTTP (open loop, Poisson). Lengths are those of
`bench.papers.scls.setting`, and so is a slice, all divided by eight. KV memory holds as many of the longest requests as
SLS has in a batch. SLS and SCLS run on either kind of engine that batches statically: transformers' `generate`, which
pads, and the torch engine, which does not. ILS is the torch engine as it is, and with a bound on requests that run.
In each round another contender comes first, and each has a mesh of its own. Run it alone: it says what others, the
client among them, used of the machine. Runs are kept below ``--out``: interrupted, the bench goes on where it was.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from bench.harness.arguments import DEFAULT_MODEL, add_names, errors_in_a_line, script_parser
from bench.harness.jobs import grouped, turned
from bench.harness.long_runs import LongRuns
from bench.harness.machine import watched
from bench.harness.paired import ratio
from bench.harness.tables import make_console, print_table
from bench.live.mesh import warm_mesh
from bench.live.ports import free_port
from bench.papers.scls.setting import SLICE_TOKENS, codefuse_like
from bench.simulated import MANY, arriving, percentile
from mesh.jobs.runner import JobPlace
from simulation.loads.trace_request import TraceRequest

SMALLER = 8  # times, than the paper's
BATCH = 8  # requests of a static batch without slices
MEMORY = "96MiB"  # holds 2,176 tokens: a batch of the longest
FEW = 4  # requests that bounded ILS runs at a time
SLS, SCLS = 'name = "round_robin"', f'name = "slices"\nslice_tokens = {SLICE_TOKENS // SMALLER}\ninterval_s = '
PADDED, STATIC = 'backend = "transformers"', 'scheduling = "static"\nchunk_tokens = 65536\nprefix_caching = false'
CONTENDERS = {  # what engines and the policy are
    "SLS, transformers": (f"{PADDED}\nmax_running = {BATCH}", SLS),
    "SCLS, transformers": (PADDED, SCLS + "0.5"),
    "SLS, torch": (f"{STATIC}\nmax_running = {BATCH}", SLS),
    "SCLS, torch": (STATIC, SCLS + "0.25"),
    "ILS": ("prefix_caching = false", SLS),
    f"ILS, {FEW} at a time": (f"prefix_caching = false\nmax_running = {FEW}", SLS),
}
PAIRS = (  # whom SCLS is compared with
    ("SCLS, transformers", "SLS, transformers"),
    ("SCLS, torch", "SLS, torch"),
    ("SCLS, torch", "ILS"),
    ("SCLS, torch", f"ILS, {FEW} at a time"),
)
TOPOLOGY = """
[services.live]
model = "{model}"
ttft_ms = 3600000
tpot_ms = 3600000
[engines.worker]
count = 2
threads = 1
kv_memory = "{memory}"
max_waiting = 100000
{engine}
[gateways.gateway]
port = {port}
[policy]
{policy}
"""
FIGURES = ("throughput", "mean_s", "p95_s")
START_S = 15.0  # of a mesh, roughly


@dataclass(frozen=True, slots=True)
class Case:
    """One contender in one round, which is the seed of its requests."""

    contender: str
    requests: int
    rate: float
    round: int

    def trace(self) -> list[TraceRequest]:
        """Draw the requests, the same for every contender."""
        return arriving(lengths(), self.rate, self.requests, Random(self.round))


@dataclass(frozen=True, slots=True)
class Result:
    """``throughput``: requests over the time until the last has ended. ``others``: cores that other processes used."""

    throughput: float
    mean_s: float
    p95_s: float
    others: float


def lengths() -> list[TraceRequest]:
    """Return the simulation's, divided and rounded up."""
    return [TraceRequest(0.0, -(-one.num_input // SMALLER), -(-one.num_output // SMALLER)) for one in codefuse_like()]


def topology_text(contender: str) -> str:
    engine, policy = CONTENDERS[contender]
    return TOPOLOGY.format(model=DEFAULT_MODEL, memory=MEMORY, engine=engine, port=free_port(), policy=policy)


def run_live(case: Case) -> Result:
    """Raise RuntimeError if a request does not finish."""
    with warm_mesh(topology_text(case.contender)) as mesh, watched(mesh.pids()) as conditions:
        outcomes = mesh.answers(case.trace(), seed=case.round)
    if failed := [one for one in outcomes if not one.is_finished]:
        raise RuntimeError(f"{case.contender}: {len(failed)} requests did not finish; the first: {failed[0].reason}")
    times_s = [one.ended_s - one.due_s for one in outcomes]
    throughput = len(outcomes) / max(one.ended_s for one in outcomes)
    return Result(throughput, fmean(times_s), percentile(times_s, 95), conditions.others)


def prefilled(trace: Sequence[TraceRequest], slice_tokens: int) -> float:
    """Return the tokens that are prefilled for a request if each slice begins with all that it has, on average."""
    return fmean(sum(one.num_input + begun for begun in range(0, one.num_output, slice_tokens)) for one in trace)


# --- tables -----------------------------------------------------------------------------------------------------------


def rows(results: Mapping[Case, Result]) -> Iterator[Sequence[str]]:
    """Yield the means over the rounds, for each contender."""
    by_name = grouped(results, lambda case: case.contender)
    for name in CONTENDERS:
        if own := by_name.get(name):
            values = (fmean(getattr(one, figure) for one in own) for figure in FIGURES)
            yield name, *(f"{value:.2f}" for value in values)


def gains(results: Mapping[Case, Result]) -> Iterator[Sequence[str]]:
    """Yield SCLS's figures over those of others in the same rounds."""
    by_name = grouped(results, lambda case: case.contender)  # rounds are in order
    for ours, theirs in PAIRS:
        if ours in by_name and theirs in by_name:
            pairs = (
                ratio(*([getattr(one, figure) for one in by_name[name]] for name in (ours, theirs)))
                for figure in FIGURES
            )
            yield ours, theirs, *(pair.text() for pair in pairs)


def main() -> None:
    options = _parse()
    cases = [
        Case(name, options.requests, options.rate, number)
        for number in range(options.rounds)
        for name in turned(options.only, number)
    ]
    runs = LongRuns(run_live, Result, lambda case: START_S + 2 * case.requests / case.rate)
    with errors_in_a_line():
        results = runs.run(cases, JobPlace(), options.out, "live")
    title = f"{options.requests} requests, {options.rate:g} a second: means of {options.rounds} rounds"
    figures = ("requests/s", "mean, s", "P95, s")
    print_table(title, ("scheduler, engines",), figures, rows(results))
    heading, gained = "SCLS over others, with 95 % intervals of paired rounds", ("throughput", "mean", "P95")
    print_table(heading, ("", "over"), gained, gains(results))
    traces = [one for number in range(options.rounds) for one in replace(cases[0], round=number).trace()]
    whole, sliced = prefilled(traces, MANY), prefilled(traces, SLICE_TOKENS // SMALLER)
    answer = fmean(one.num_output for one in traces)
    told = f"a request has {answer:.0f} new tokens, {whole:.0f} are prefilled for it, and {sliced:.0f} with slices"
    make_console().print(told, highlight=False)
    others = [one.others for one in results.values()]
    make_console().print(f"others used {fmean(others):.2f} cores, {max(others):.2f} at most", highlight=False)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.scls.live", __doc__, rounds=3, out="scls_live")
    add_names(parser, "--only", CONTENDERS)
    parser.add_argument("--requests", type=int, default=40, metavar="N", help="of each run (default: 40)")
    parser.add_argument("--rate", type=float, default=8.0, metavar="R", help="requests a second (default: 8)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
