"""Puts what a command found where somebody looks: into files, and as a chart on the terminal that it writes to."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mesh.errors import UserError
from mesh.show.figures import SUFFIXES, require_matplotlib, write_picture
from mesh.show.pages import Page, write_page


def add_show(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", what: str) -> None:
    """Add ``--plot`` and ``--html`` to a command. ``what`` is in the picture."""
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"draw {what}; .svg or .png (needs the extra bench)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the same as a page in one file")


@dataclass(frozen=True, slots=True)
class Showing:
    """Where a page goes. ``has_chart``: to the terminal, too."""

    plot: Path | None
    html: Path | None
    has_chart: bool

    @classmethod
    def of(cls, options: argparse.Namespace, *, is_for_programs: bool = False) -> "Showing":
        """Raise `UserError` if a file that is asked for cannot be made: before the work, not after it.

        ``is_for_programs``: standard output has JSON, and nothing else.
        """
        for option, path in (("--plot", options.plot), ("--html", options.html)):
            if path is not None:
                _check(option, path)
        return cls(options.plot, options.html, sys.stdout.isatty() and not is_for_programs)

    @property
    def is_used(self) -> bool:
        return self.has_chart or self.plot is not None or self.html is not None

    def put(self, make: Callable[[], Page]) -> None:
        """``make`` the page if it goes anywhere."""
        if not self.is_used:
            return
        page = make()
        if self.has_chart and page.pictures:
            from rich.console import Console

            from mesh.show.charts import print_chart

            print_chart(Console(highlight=False), page.pictures[0])
        if self.plot is not None:
            _write("--plot", self.plot, lambda path: write_picture(path, page.pictures[0]))
        if self.html is not None:
            _write("--html", self.html, lambda path: write_page(path, page))


def _check(option: str, path: Path) -> None:
    if option == "--plot" and path.suffix.lower() not in SUFFIXES:
        raise UserError(f"--plot: {path}: call it .svg or .png; its name says what is drawn")
    require_matplotlib(option)
    if path.is_dir():
        raise UserError(f"{option}: {path} is a folder; name a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"{option}: there is no folder {folder}; make it, or name another file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UserError(f"{option}: {path} cannot be written; name another file")


def _write(option: str, path: Path, write: Callable[[Path], None]) -> None:
    try:
        write(path)
    except OSError as error:
        raise UserError(f"{option}: {path} cannot be written: {error.strerror}") from None
    sys.stderr.write(f"written to {path}\n")
