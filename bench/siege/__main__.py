"""A siege: what comes from outside must not stop a mesh, nor slow down who is honest.

    python -m bench.siege [--fast] [--only CLASS|NAME ...] [--rounds N] [--seed N] [--model tiny|default]
                          [--list] [--json FILE] [--folder FOLDER]

A mesh is started, its memory limited. A witness asks it all the time, and reads one long greedy answer whose text
is known, while attacks of the catalogue run one by one and then in random mixtures. Exit code 1 if a bar is missed: no
failure of the witness, no gap of its a second longer than load explains, no process started anew, no process grown by
256 MiB during an attack or by 32 MiB after it, and each attacker answered with 4xx, cut off, or served like anyone.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import bench.siege.attacks  # noqa: F401  (fills the catalogue)
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console
from bench.siege.attack import CATALOGUE, ONE_HOST, Attack, Family
from bench.siege.campaign import Campaign, Orders, ordered
from bench.siege.report import document, line, markdown, remarks, table
from bench.siege.verdict import Row
from bench.siege.walls import Served, default_model, tiny
from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, EXIT_INTERRUPTED, UserError

WIDTH = 160
ROUNDS = 12
TINY, DEFAULT = "tiny", "default"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.siege", __doc__)
    parser.add_argument("--fast", action="store_true", help="a few attacks of each class, at a quick pace")
    parser.add_argument("--only", nargs="+", metavar="CLASS|NAME", help="only these (default: all)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"random mixtures (default: {ROUNDS}; fast: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of mixtures and of what attackers draw")
    parser.add_argument("--model", choices=(TINY, DEFAULT), help="what is served (default: default; fast: tiny)")
    parser.add_argument("--list", action="store_true", help="say which attacks there are, and where they come from")
    add_json(parser)
    parser.add_argument("--markdown", action="store_true", help="print the table for a page, too")
    parser.add_argument("--folder", type=Path, help="keep models, topologies and logs in this new folder")
    return parser.parse_args(argv)


def choose(names: Sequence[str] | None, *, is_fast: bool) -> list[Attack]:
    """By name or class. Raise `UserError` if there is nothing of a name."""
    attacks = ordered(list(CATALOGUE.values()))
    if names is None:
        return [one for one in attacks if one.in_fast or not is_fast]
    known = {*CATALOGUE, *Family}
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"no attack or class {unknown[0]!r}; --list says which there are")
    return [one for one in attacks if one.name in names or one.family in names]


def orders_of(options: argparse.Namespace) -> Orders:
    """Raise `UserError` if there is nothing of a name."""
    rounds = options.rounds
    if rounds is None:
        rounds = (1 if options.fast else ROUNDS) if options.only is None else 0
    return Orders(choose(options.only, is_fast=options.fast), options.seed, rounds, options.fast)


async def run(orders: Orders, served: Served, folder: Path, console: Console) -> list[Row]:
    """With a line before and after each."""
    me = asyncio.current_task()
    assert me is not None, "this runs as a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)  # stops the mesh, as Ctrl-C does
    rows: list[Row] = []
    async with Campaign(folder, served, orders) as campaign:
        async for attacks, row in campaign.rows():
            rows.append(row)
            source = attacks[0].source if len(attacks) == 1 else ""
            console.print(
                f"{len(rows)} {row.family}: {row.name}{f' ({source})' if source else ''}", highlight=False, markup=False
            )
            for text in (line(row), *remarks(row)):
                console.print(text, highlight=False, markup=False)
    return rows


def _besiege(options: argparse.Namespace, folder: Path, console: Console) -> list[Row]:
    kind = options.model or (TINY if options.fast else DEFAULT)
    served = tiny(folder) if kind == TINY else default_model()
    return asyncio.run(run(orders_of(options), served, folder, console))


def _list() -> None:
    for one in ordered(list(CATALOGUE.values())):
        where = "" if one.wall == ONE_HOST else f" [{one.wall}]"
        print(f"{one.family:10} {one.name:36}{'fast ' if one.in_fast else ''}{one.source}{where}")


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    if options.list:
        _list()
        return 0
    console = make_console(WIDTH)
    try:
        orders_of(options)
        if options.folder:
            options.folder.mkdir(parents=True)
            rows = _besiege(options, options.folder.absolute(), console)
        else:
            with tempfile.TemporaryDirectory(prefix="siege-", ignore_cleanup_errors=True) as folder:
                rows = _besiege(options, Path(folder), console)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_INTERRUPTED
    console.print(table(rows))
    if options.markdown:
        print(markdown(rows))
    if options.json:
        settings = {"seed": options.seed, "fast": options.fast, "model": options.model}
        write_json(options.json, document(rows, settings))
    return 0 if all(row.is_passed for row in rows) else EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
