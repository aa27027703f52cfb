"""``mesh --print-completion SHELL``: a script that completes commands, options and topology files."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh", "fish")


def add_print_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-completion",
        choices=SHELLS,
        action=_PrintCompletion,
        help="print a script with which this shell completes commands, options and files",
    )


class _PrintCompletion(argparse.Action):
    """Ends the program, as --version does. What makes scripts is imported here: other commands need not wait for it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        sys.stdout.write(script(parser, str(values)))
        parser.exit()


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return what a shell reads to complete the arguments of ``parser`` and of its commands."""
    import shtab

    topologies = shtab.glob("*.toml")
    for action in _actions(parser):
        if _names_topology(action):
            action.complete = topologies  # type: ignore[attr-defined]
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments, those of commands and of their actions, too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def _names_topology(action: argparse.Action) -> bool:
    """Say whether it takes a topology: alone, or as the first of several words."""
    return action.dest in ("file", "topology") or (action.dest == "words" and str(action.metavar).startswith("FILE"))
