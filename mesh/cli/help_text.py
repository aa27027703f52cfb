"""Lays out what ``--help`` prints, so that it fits the terminal, with usage lines and descriptions."""

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

PREFIX: Final = "usage: "
ALTERNATIVE: Final = " | mesh "  # begins another form of the same command, in one line


class HelpFormatter(argparse.HelpFormatter):
    """Help in one column beside options of moderate length. Indented lines, such as examples, stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None) -> str:
        if usage is None:
            return super()._format_usage(usage, actions, groups, prefix)
        return "".join(f"{line}\n" for line in _usage_lines(usage, self._width)) + "\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_filled(text.splitlines(), width))


def describe(parser: argparse.ArgumentParser) -> None:
    """Give each command without a description the sentence that its line in the list of commands makes."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                command.description = command.description or sentence(texts.get(name, ""))
                describe(command)


def sentence(text: str) -> str:
    words = " ".join(text.split())
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def _usage_lines(usage: str, width: int) -> Iterator[str]:
    """Each form of a command on lines of its own. What is in brackets stays together."""
    forms = usage.replace(ALTERNATIVE, "\nmesh ").splitlines()
    start = PREFIX
    for form in forms:
        line = start.ljust(len(PREFIX))
        for part in _parts(form):
            if len(line) + len(part) > width and line.strip():
                yield line.rstrip()
                line = " " * (len(PREFIX) + 4)
            line += f"{part} "
        yield line.rstrip()
        start = ""


def _parts(form: str) -> Iterator[str]:
    """The words of a usage line; one with an open bracket goes on to where it is closed."""
    part, depth = "", 0
    for word in form.split():
        part = f"{part} {word}" if part else word
        depth += sum(map(word.count, "[(")) - sum(map(word.count, "])"))
        if depth == 0:
            yield part
            part = ""


def _filled(lines: Iterable[str], width: int) -> Iterator[str]:
    paragraph: list[str] = []
    for line in (*lines, ""):
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        yield from textwrap.wrap(" ".join(paragraph), width)
        paragraph = []
        if line:
            yield line
