"""The page of the command line, made from the parsers of ``mesh``."""

import argparse
import os
from collections.abc import Iterator

from docs.tools.tables import table
from mesh.cli.entry import command_parser

_INTRODUCTION = """# Command line

This page is made from the parsers of `mesh`. `mesh COMMAND --help` prints the same for one command.
A command exits with 0 when it did what was asked, with 1 when it could not, with 2 when the command line or a file is
wrong, and with 130 after Ctrl-C. What you can mend yourself is one line on standard error.
"""


def page() -> str:
    os.environ["COLUMNS"] = "100"  # argparse wraps usage lines to the terminal
    parser = command_parser()
    found = sorted(_subcommands(parser), key=lambda command: command[0])
    overview = table(("command", "does"), [(f"[`mesh {name}`](#mesh-{name})", text) for name, text, _ in found])
    return "\n".join([_INTRODUCTION, overview, *(_section(f"mesh {name}", sub) for name, _, sub in found)])


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            yield from ((name, texts.get(name, ""), sub) for name, sub in action.choices.items())


def _section(name: str, parser: argparse.ArgumentParser, level: int = 2) -> str:
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    parts = [f"\n{'#' * level} {name}\n", " ".join((parser.description or "").split()), f"\n```text\n{usage}\n```\n"]
    if rows := list(_options(parser)):
        parts.append(table(("argument", "meaning"), rows))
    parts += (_section(f"{name} {sub_name}", sub, 3) for sub_name, _, sub in _subcommands(parser))
    return "\n".join(parts)


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = f" {action.metavar}" if action.option_strings and isinstance(action.metavar, str) else ""
        yield f"`{names}{value}`", _help(action)


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%").replace("%(default)s", str(action.default))
    if action.choices:
        text += f" One of {', '.join(f'`{choice}`' for choice in action.choices)}."
    return text
