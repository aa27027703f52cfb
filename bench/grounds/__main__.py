"""Runs every policy on each paper's own setting, to see whether the union loses where a single policy is at home.

    python -m bench.grounds [--ground NAME ...] [--only NAME ...] [--seeds 3] [--requests 600] [--jobs N] [--out FOLDER]

In simulation. Tropical's and Aladdin's grounds are judged by the promises that are kept, Llumnix's by the P99 of the
time to the first token. SeaLLM's is judged by the mean latency over what a request of its service takes alone, SCLS's
by throughput (`bench.grounds.settings`). Intervals are of paired seeds. Runs are kept below ``--out``.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from bench.combined.contenders import ALL_ON, CONTENDERS, EVERYBODY
from bench.grounds.settings import GROUNDS, OWN, OWN_NAME, Case, measure
from bench.harness.arguments import add_names, errors_in_a_line, script_parser
from bench.harness.jobs import grouped
from bench.harness.long_runs import LongRuns
from bench.harness.paired import ratio
from bench.harness.tables import print_table

ALIKE = 0.98  # of the best: no worse
SECONDS_A_REQUEST = 0.03  # of one core
WIDTH = 160


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    cases = [
        Case(ground, name, options.requests, seed)
        for ground in options.ground
        for name in [*options.only, *([OWN_NAME] if ground in OWN else [])]
        for seed in range(options.seeds)
    ]
    runs = LongRuns(measure, float, lambda case: SECONDS_A_REQUEST * case.num_requests)
    with errors_in_a_line():
        results = runs.run(cases, options.jobs, options.out, "grounds")
    for ground in options.ground:
        own = {case: value for case, value in results.items() if case.ground == ground}
        by_name, one = grouped(own, lambda case: case.contender), GROUNDS[ground]
        title = f"{ground}: {one.measure} ({'less' if one.less_is_better else 'more'} is better)"
        print_table(title, ("contender",), (one.measure, "everything: times as good"), _rows(ground, by_name), WIDTH)


def _rows(ground: str, by_name: Mapping[str, Sequence[float]]) -> Iterator[Sequence[str]]:
    """The best first. More than `ALIKE` of a contender: everything is no worse than it."""
    sign = 1 if GROUNDS[ground].less_is_better else -1
    for name, values in sorted(by_name.items(), key=lambda item: sign * fmean(item[1])):
        times = ""
        if name != ALL_ON and ALL_ON in by_name:
            ours = by_name[ALL_ON]
            found = ratio(values, ours) if sign > 0 else ratio(ours, values)
            times = found.text() + (" *" if found.mean < ALIKE else "")
        yield name, f"{fmean(values):.2f}", times


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.grounds", __doc__, seeds=3, jobs=True, out="grounds")
    add_names(parser, "--ground", GROUNDS)
    parser.add_argument(
        "--only", nargs="+", choices=EVERYBODY, default=[*CONTENDERS], metavar="NAME", help="(default: all)"
    )
    parser.add_argument("--requests", type=int, default=600, metavar="N", help="of a run (default: 600)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
