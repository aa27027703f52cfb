"""Harms a real mesh of its own, and says what its honest clients noticed.

    python -m tests.tools.harm chaos [--only CLASS|NAME ...] [--short] [--seed N] [--churn SECONDS]
    python -m tests.tools.harm siege [--only CLASS|NAME ...] [--short] [--seed N] [--rounds N]

`chaos` kills and stops processes, loses messages and lets clients go away (`tests.tools.harm.faults`); `siege` attacks
(`tests.tools.harm.attacks`). Both take ``--list``, ``--json FILE`` and ``--folder FOLDER``, too. The exit code is 1 if
a bar is missed.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console
from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, EXIT_INTERRUPTED, UserError
from tests.tools.harm import chaos, siege
from tests.tools.harm.harm import Harm
from tests.tools.harm.verdict import Row, document, print_all

WIDTH = 160
PROGRAMMES = {"chaos": chaos, "siege": siege}  # modules that harm, each in the same words


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("tests.tools.harm", __doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, programme in PROGRAMMES.items():
        options = kinds.add_parser(kind, help=(programme.__doc__ or "").partition("\n")[0])
        options.add_argument("--only", nargs="+", metavar="NAME", help="only these, by name or class (default: all)")
        options.add_argument("--short", action="store_true", help="some of each kind, at a quick pace")
        options.add_argument("--seed", type=int, default=0, help="of all that is drawn")
        options.add_argument("--list", action="store_true", help="say what there is")
        options.add_argument("--folder", type=Path, help="keep models, topologies and logs in this new folder")
        add_json(options)
        programme.add_options(options)
    return parser.parse_args(argv)


async def run_all(plan: Sequence[Sequence[Harm]], options: argparse.Namespace, folder: Path) -> list[Row]:
    """Harm one mesh at a time, and print what comes of each harm; a mesh that is broken is replaced.

    Raise `UserError` if one cannot be started.
    """
    me = asyncio.current_task()
    assert me is not None, "this runs as a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)  # stops the meshes, as Ctrl-C does
    console, waiting, rows, number = make_console(WIDTH), deque(plan), list[Row](), 0
    while waiting:
        kind, number = waiting[0][0].mesh, number + 1
        its_folder = folder / f"{kind}-{number}"
        its_folder.mkdir()
        async with PROGRAMMES[options.kind].standing(kind, its_folder, options) as mesh:
            while waiting and waiting[0][0].mesh == kind:
                harms = waiting.popleft()
                rows.append(await mesh.run(harms, Random(f"{options.seed} {' '.join(one.name for one in harms)}")))
                for text in (f"{len(rows)}/{len(plan)} {rows[-1].name}: {rows[-1].title}", *rows[-1].lines()):
                    console.print(text, highlight=False, markup=False, soft_wrap=True)
                if not rows[-1].is_whole:
                    break
    print_all(rows, WIDTH)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    programme = PROGRAMMES[options.kind]
    if options.list:
        for one in programme.HARMS:
            print(f"{one.family:10} {one.name:36}{'short ' if one.in_short else ''}{one.title} [{one.mesh}]")
        return 0
    try:
        plan = programme.plan(options)
        if options.folder:
            options.folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="harm-", ignore_cleanup_errors=True) as folder:
            rows = asyncio.run(run_all(plan, options, options.folder.absolute() if options.folder else Path(folder)))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_INTERRUPTED
    write_json(options.json, document(rows, {"seed": options.seed, "short": options.short}))
    return EXIT_FAILURE if any(row.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
