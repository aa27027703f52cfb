"""Arguments in, exit code out. Commands of upper floors are found through the entry points ``meshserve.commands``."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, cast

from mesh import __version__
from mesh.cli.first_steps.completion import add_print_completion
from mesh.cli.help_text import describe
from mesh.cli.parser import Parser
from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, EXIT_INTERRUPTED, CommandError, UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mesh.cli.arguments import Subparsers

ENTRY_POINTS = "meshserve.commands"
COMMANDS = {
    "serve": "mesh.cli.first_steps.serve",
    "init": "mesh.cli.first_steps.init",
    "doctor": "mesh.cli.first_steps.doctor",
    "up": "mesh.cli.up",
    "down": "mesh.cli.down",
    "status": "mesh.cli.status",
    "logs": "mesh.cli.logs",
    "chat": "mesh.cli.chat",
    "check": "mesh.cli.check",
    "tap": "mesh.cli.tap",
    "keys": "mesh.cli.keys",
    "curve-key": "mesh.cli.curve_key",
    "deploy": "mesh.cli.deploy",
    "migrate": "mesh.cli.changes.migrate",
    "drain": "mesh.cli.changes.drain",
    "role": "mesh.cli.changes.role",
    "load": "mesh.cli.changes.services",
    "unload": "mesh.cli.changes.services",
    "services": "mesh.cli.changes.added",
    "start": "mesh.cli.changes.running",
    "stop": "mesh.cli.changes.running",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answer its exit code. Whatever a user can mend is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _write_anything()
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
        sys.stderr.write("\ninterrupted\n" if sys.stderr.isatty() else "interrupted\n")  # a terminal shows ^C
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on, as with `| head`
        return EXIT_FAILURE
    return code


def _write_anything() -> None:
    """Let a terminal that knows few letters, or a name that is no text, cost a question mark and not the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def command_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of ``mesh``: of the command that ``arguments`` begin with, or of all if they begin with none."""
    parser = Parser(
        prog="mesh",
        description="Serve language models from a mesh of processes behind one OpenAI-compatible API.",
        epilog="Start with `mesh serve` or `mesh up`, ask with `mesh chat`, look with `mesh status`.",
    )
    parser.add_argument("--version", action="version", version=f"mesh {__version__}")
    add_print_completion(parser)
    subparsers = cast("Subparsers", parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    asked = arguments[0] if arguments else ""
    if asked in COMMANDS:
        import_module(COMMANDS[asked]).register(subparsers)
        describe(parser)
        return parser
    others = _others()
    found = [one for one in others if one.name == asked]
    for module in dict.fromkeys(() if found else COMMANDS.values()):
        import_module(module).register(subparsers)
    _register_others(subparsers, found or others)
    describe(parser)
    return parser


def _others() -> "Sequence[EntryPoint]":
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINTS))


def _register_others(subparsers: "Subparsers", found: "Iterable[EntryPoint]") -> None:
    """A command whose package cannot be loaded says so when it is asked for; the others work on."""
    for entry in found:
        try:
            entry.load()(subparsers)
        except (ImportError, AttributeError) as error:
            broken = subparsers.add_parser(entry.name, help="cannot be loaded")
            broken.set_defaults(run=_explain, reason=f"mesh {entry.name}: cannot be loaded: {error}")


def _explain(options: argparse.Namespace) -> int:
    raise UserError(options.reason)
