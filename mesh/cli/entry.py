"""Arguments in, exit code out. Commands of upper floors are found through the entry points ``meshserve.commands``."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from mesh import __version__
from mesh.cli import (
    chat,
    check,
    curve_key,
    deploy,
    down,
    keys,
    logs,
    status,
    tap,
    up,
)
from mesh.cli.changes import drain, migrate, role, running, services
from mesh.cli.first_steps import doctor, init, serve
from mesh.cli.first_steps.completion import add_print_completion
from mesh.cli.parser import Parser
from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, EXIT_INTERRUPTED, CommandError, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers

ENTRY_POINTS = "meshserve.commands"
COMMANDS = {
    "serve": serve,
    "init": init,
    "doctor": doctor,
    "up": up,
    "down": down,
    "status": status,
    "logs": logs,
    "chat": chat,
    "check": check,
    "tap": tap,
    "keys": keys,
    "curve-key": curve_key,
    "deploy": deploy,
    "migrate": migrate,
    "drain": drain,
    "role": role,
    "load": services,
    "unload": services,
    "start": running,
    "stop": running,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answer its exit code. Whatever a user can mend is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = command_parser(arguments).parse_args(arguments)
        code = int(options.run(options))
        sys.stdout.flush()
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on, as with `| head`
        return EXIT_FAILURE
    return code


def command_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of ``mesh``. Of upper floors it has the command that ``arguments`` begin with, or all of them."""
    parser = Parser(
        prog="mesh",
        description="Serve language models from a mesh of processes behind one OpenAI-compatible API.",
        epilog="Start with `mesh serve` or `mesh up`, ask with `mesh chat`, look with `mesh status`.",
    )
    parser.add_argument("--version", action="version", version=f"mesh {__version__}")
    add_print_completion(parser)
    subparsers = cast("Subparsers", parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    for module in dict.fromkeys(COMMANDS.values()):
        module.register(subparsers)
    if not arguments or arguments[0] not in COMMANDS:
        others = entry_points(group=ENTRY_POINTS)
        _register_others(subparsers, [one for one in others if arguments[:1] == [one.name]] or others)
    return parser


def _register_others(subparsers: "Subparsers", found: Iterable[EntryPoint]) -> None:
    """A command whose package cannot be loaded says so when it is asked for; the others work on."""
    for entry in found:
        try:
            entry.load()(subparsers)
        except (ImportError, AttributeError) as error:
            broken = subparsers.add_parser(entry.name, help="cannot be loaded")
            broken.set_defaults(run=_explain, reason=f"mesh {entry.name}: cannot be loaded: {error}")


def _explain(options: argparse.Namespace) -> int:
    raise UserError(options.reason)
