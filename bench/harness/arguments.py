"""Argument parsers of the scripts, the arguments that many of them have, and how scripts end with an error."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mesh.errors import CommandError, UserError


def script_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser for ``python -m module``. The first line of ``doc``, the script's docstring, is its description."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").partition("\n")[0])


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """End the script with the message of what went wrong, and with exit status 1."""
    try:
        yield
    except (CommandError, UserError) as error:
        raise SystemExit(str(error)) from None


def add_seeds(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument("--seeds", type=int, default=default, metavar="N", help=f"runs of each (default: {default})")


def add_names(parser: argparse.ArgumentParser, option: str, names: Iterable[str]) -> None:
    """Some of these names; all of them by default."""
    known = [*names]
    help_text = f"of {'; '.join(known)} (default: all)"
    parser.add_argument(option, nargs="+", choices=known, default=known, metavar="NAME", help=help_text)


def add_out(parser: argparse.ArgumentParser, default: str) -> None:
    """The folder for results and pictures."""
    parser.add_argument("--out", type=Path, default=Path(default), metavar="DIR", help=f"(default: {default})")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")


def add_vllm(parser: argparse.ArgumentParser) -> None:
    """An environment with vLLM, which comparisons need and this project does not."""
    parser.add_argument("--vllm-python", type=Path, metavar="PATH", help="interpreter of `make vllm-env`'s environment")
    parser.add_argument(
        "--vllm-env", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="such as LD_PRELOAD"
    )


def number_list(text: str) -> tuple[int, ...]:
    """The type of an argument such as ``8,64``."""
    return tuple(int(part) for part in text.split(","))


def name_and_value(text: str) -> tuple[str, str]:
    """The type of an argument such as ``NAME=VALUE``."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r}: want NAME=VALUE")
    return name, value
