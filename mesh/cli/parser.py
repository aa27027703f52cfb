"""The parser of ``mesh`` and its commands: a wrong argument is one line, with what was probably meant."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from mesh.cli.help_text import HelpFormatter
from mesh.errors import EXIT_CONFIGURATION
from mesh.suggestions import closest, suggestion

FEW: Final = 8  # commands that are all named where none is near


class Parser(argparse.ArgumentParser):
    """Also that of each command: argparse makes those of the class of their own parser."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter, **settings})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse what nobody knows where its options are known: each command's parser is asked for its own."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._unknown(rest[0]))
        return found, rest

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"too many arguments: {word!r} is one more than there may be"
        name = word.partition("=")[0]
        close = closest(name, self._long_options())
        return f"no option {name!r}; did you mean {close!r}?" if close else f"no option {name!r}"

    def _long_options(self) -> Iterator[str]:
        return (option for option in self._option_string_actions if option.startswith("--"))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"no command {value!r}" + _instead(str(value), list(map(str, action.choices))))
        raise argparse.ArgumentError(action, f"no {value!r}; {suggestion(str(value), map(str, action.choices))}")

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_CONFIGURATION, f"{self.prog}: {message} (`{self.prog} --help` shows how)\n")


def _instead(word: str, commands: Sequence[str]) -> str:
    """What was probably meant, or all there are if they are few."""
    close = closest(word, commands)
    if close:
        return f"; did you mean {close!r}?"
    return f"; {suggestion(word, commands)}" if len(commands) <= FEW else ""
