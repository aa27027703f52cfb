"""What happens when what dies, on real processes: a table of scenarios, each with a load whose answers are known.

    python -m bench.chaos [--scenario NAME ...] [--list] [--quick] [--churn SECONDS] [--seed N] [--out FILE.json]

A mesh of one prefill engine, two decode engines and two gateways is started with `mesh up`; a second, healthy one says
what answers should be. Streaming and other clients come in through the gateways' HTTP; greedy and sampled answers are
compared piece by piece. Exit code 1 if a row misses its target: no accepted request fails but those of a killed
gateway, no token is duplicated or missing, no pause between two tokens of a stream is as long as 3 s.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.chaos.deployment import Backend
from bench.chaos.lab import Lab, Settings
from bench.chaos.report import document, markdown, remarks, table
from bench.chaos.scenarios import churn, clients, hosts, messages, placement, processes
from bench.chaos.scenarios.registry import MESHES, SCENARIOS, Scenario
from bench.chaos.verdict import Row
from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console
from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, EXIT_INTERRUPTED, UserError

FAMILIES = [
    family.__name__ for family in (processes, clients, churn, hosts, placement, messages)
]  # importing them adds their scenarios
CHURN_S, QUICK_CHURN_S = 180.0, 8.0
WIDTH = 120


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.chaos", __doc__)
    parser.add_argument("--scenario", nargs="+", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--quick", action="store_true", help="the short form: fewer scenarios, less load")
    parser.add_argument("--churn", type=float, metavar="SECONDS", help=f"how long churn lasts (default: {CHURN_S:g})")
    parser.add_argument("--backend", choices=list(Backend), default=Backend.SIMULATED, help="what engines compute with")
    parser.add_argument("--seed", type=int, default=0, help="of prompts, lengths and random events")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the rows here")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page, too")
    return parser.parse_args(argv)


def choose(names: list[str] | None, *, is_quick: bool) -> list[Scenario]:
    """In the order in which they run. Raise `UserError` if there is no such scenario."""
    if names is None:
        names = [one.name for one in ordered() if one.in_short or not is_quick]
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise UserError(f"no scenario {unknown[0]!r}; there are {', '.join(one.name for one in ordered())}")
    return [one for one in ordered() if one.name in names]


def ordered() -> list[Scenario]:
    """All of them, by the mesh that they need."""
    return sorted(SCENARIOS.values(), key=lambda one: (MESHES.index(one.mesh), FAMILIES.index(one.run.__module__)))


async def run(scenarios: list[Scenario], settings: Settings, console: Console) -> list[Row]:
    """One after the other, with a line before and after each."""
    rows: list[Row] = []
    me = asyncio.current_task()
    assert me is not None, "this runs as a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)  # stops the meshes, as Ctrl-C does
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        async with Lab(Path(folder), settings) as lab:
            for number, scenario in enumerate(scenarios, 1):
                console.print(f"{number}/{len(scenarios)} {scenario.name}: {scenario.title}", highlight=False)
                row = await lab.run(scenario)
                rows.append(row)
                console.print(f"  {summary(row)}", highlight=False, markup=False)
                for line in remarks(row):
                    console.print(line, highlight=False, markup=False)
    return rows


def summary(row: Row) -> str:
    tally = row.tally
    gap = "-" if tally.worst_gap_s is None else f"{tally.worst_gap_s:.2f} s"
    result = "pass" if row.is_passed else "FAIL"
    return (
        f"{result}: {tally.requests} requests, {tally.failed} failed, {tally.wrong} wrong tokens, worst gap {gap}"
        f" ({row.took_s:.0f} s)"
    )


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    if options.list:
        for scenario in ordered():
            print(f"{scenario.name:20} {scenario.title}")
        return 0
    churn_s = options.churn or (QUICK_CHURN_S if options.quick else CHURN_S)
    settings = Settings(Backend(options.backend), options.seed, options.quick, churn_s)
    console = make_console(WIDTH)
    try:
        rows = asyncio.run(run(choose(options.scenario, is_quick=options.quick), settings, console))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_INTERRUPTED
    console.print(table(rows))
    if options.markdown:
        print(markdown(rows))
    if options.out:
        write_json(options.out, document(rows, settings))
    return 0 if all(row.is_passed for row in rows) else EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
