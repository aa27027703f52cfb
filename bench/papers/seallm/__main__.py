"""SeaLLM's testbed in simulation: 32 GPUs in 4 nodes, 8 services, by rate (figures 6 to 8 of the paper).

    python -m bench.papers.seallm --lengths CHATS SUMMARIES CODE --arrivals FILE [--systems ours dedicated ...]
        [--rates 2 5 ...] [--requests 400] [--seconds 40] [--seeds 1] [--jobs N] [--out DIR]

Services are clusters of requests by length, each with one of four models. Our placement search and doubling budgets
are beside own devices for each service (as vLLM), first come first served (as AlpaServe) and turns with quotas of
memory (as MuxServe), and beside ourselves with a part left out: with first come first served (-F), with skip-join MLFQ
(-M), and without sharing (-P).
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, starmap
from pathlib import Path

from bench.harness.arguments import add_out, add_seeds, errors_in_a_line, script_parser
from bench.harness.tables import print_table
from bench.papers.seallm.plans import Effort, Planner
from bench.papers.seallm.run import OURS, SYSTEMS, Case, Result, run_case
from bench.papers.seallm.scene import Inputs, Scene, make_world
from bench.simulated import run_cases, write_results
from mesh.jobs.arguments import add_jobs

PAPERS: Mapping[str, Mapping[str, float]] = {  # "up to so many times better", sections 6.2 and 6.3
    "dedicated": {"mean": 10.38, "p99": 12.13, "attainment": 1.82},
    "alpaserve": {"mean": 9.52, "p99": 5.80, "attainment": 3.64},
    "muxserve": {"mean": 13.60, "p99": 18.69, "attainment": 2.11, "ttft_s": 51.98},
    "-F": {"mean": 4.17, "attainment": 1.37},
    "-M": {"mean": 4.17, "attainment": 1.37},
}
MEASURES = {"mean": "mean latency", "p99": "P99", "attainment": "kept", "ttft_s": "TTFT"}

WIDTH = 140  # characters of tables

Results = Mapping[tuple[str, float, int], Result]  # by system, rate and seed


def main() -> None:
    options = _parse()
    inputs, effort = Inputs(tuple(options.lengths), options.arrivals), Effort(options.history, batches=options.batches)
    with errors_in_a_line():
        make_world(inputs)  # before anything is run
    results = {
        (name, case.scene.rate, case.scene.seed): result
        for case, by_name in run_cases(run_case, list(_cases(options, inputs, effort)), options.jobs).items()
        for name, result in by_name.items()
    }
    measures = ("requests", "failed", "mean", "P99", "kept, %", "TTFT, s", "TPOT, ms")
    title, words = "by requests a second; latencies normalised", ("requests/s", "seed", "system")
    print_table(title, words, measures, _rows(results, options), WIDTH)
    title, than = "ours is up to so many times better, at requests/s (the paper's)", ("than", *MEASURES.values())
    print_table(title, than, (), starmap(_ratio_cells, best_ratios(results).items()), WIDTH)
    write_results(options.out / "seallm.json", results)


def _cases(options: argparse.Namespace, inputs: Inputs, effort: Effort) -> Iterator[Case]:
    for seed, rate, planner in product(range(options.seeds), options.rates, Planner):
        systems = tuple(name for name in options.systems if SYSTEMS[name].planner is planner)
        if systems:
            scene = Scene(rate, max(options.seconds, options.requests / rate), seed=seed)
            yield Case(planner, systems, inputs, scene, effort)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm", __doc__)
    doc = "lengths of chats, of summaries (input_tokens, output_tokens), of code (prompt_pieces, solution_pieces)"
    parser.add_argument("--lengths", nargs=3, type=Path, required=True, metavar="FILE", help=doc)
    parser.add_argument("--arrivals", type=Path, required=True, metavar="FILE", help="Azure Functions")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS], help="(default: all)")
    parser.add_argument("--rates", nargs="+", type=float, default=[2.0, 5.0, 10.0, 30.0, 50.0], metavar="R")
    parser.add_argument("--requests", type=int, default=400, metavar="N", help="of a run (default: 400)")
    parser.add_argument("--seconds", type=float, default=40.0, metavar="S", help="of a run at least (default: 40)")
    parser.add_argument("--history", type=int, default=200, metavar="N", help="requests that plans are made for")
    parser.add_argument("--batches", type=int, default=5, metavar="N", help="of 8 plans each, in local search")
    add_seeds(parser, 1)
    add_jobs(parser)
    add_out(parser, "testbed")
    return parser.parse_args()


def _rows(results: Results, options: argparse.Namespace) -> Iterator[Sequence[str]]:
    for rate, seed, name in product(options.rates, range(options.seeds), options.systems):
        one = results[name, rate, seed]
        latencies = f"{one.mean:.2f}", f"{one.p99:.1f}", f"{100 * one.attainment:.1f}"
        times = f"{one.ttft_s:.2f}", f"{1e3 * one.tpot_s:.0f}"
        yield f"{rate:g}", str(seed), name, str(one.num_requests), str(one.num_failed), *latencies, *times


def best_ratios(results: Results) -> dict[str, dict[str, tuple[float, float]]]:
    """Find how many times better ours is at most, and at which rate, by system and measure."""
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for (name, rate, seed), theirs in results.items():
        ours = results.get((OURS, rate, seed))
        if name != OURS and ours is not None:
            known = best.setdefault(name, {})
            for measure in MEASURES:
                ratio = getattr(theirs, measure) / getattr(ours, measure)
                if measure == "attainment":  # larger is better
                    ratio = 1 / ratio if ratio else 0.0
                known[measure] = max(known.get(measure, (0.0, 0.0)), (ratio, rate))
    return best


def _ratio_cells(name: str, best: Mapping[str, tuple[float, float]]) -> list[str]:
    """Ours against another system, with the paper's best in brackets."""
    papers = PAPERS.get(name, {})
    cells = (f"{best[measure][0]:.2f}, {best[measure][1]:g}/s" for measure in MEASURES)
    stated = (f" ({papers[measure]:g})" if measure in papers else "" for measure in MEASURES)
    return [name, *map("".join, zip(cells, stated, strict=True))]


if __name__ == "__main__":
    main()
