"""Holds what several commands share: arguments, and lines of output."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.cli.running_mesh import DEFAULT_TOPOLOGY, running_topology
from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.topology.schema import Topology

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_topology(parser: argparse.ArgumentParser, *, option: bool = False, running: bool = False) -> None:
    """The deployment to work on, as an optional argument or as ``--topology``. ``running``: the command is about a mesh
    that runs, so that one of `mesh serve` may be meant.
    """
    which = f"what `mesh serve` runs, or {DEFAULT_TOPOLOGY}" if running else f"{DEFAULT_TOPOLOGY}"
    text = f"the deployment (default: {which})"
    read, default = (running_topology, "") if running else (Path, str(DEFAULT_TOPOLOGY))  # argparse reads defaults, too
    if option:
        parser.add_argument("--topology", dest="file", type=read, default=default, metavar="FILE", help=text)
    else:
        parser.add_argument("file", type=read, nargs="?", default=default, metavar="FILE", help=text)


def add_timeout(parser: argparse.ArgumentParser, default_s: float) -> None:
    text = f"how long to wait (default: {default_s:g})"
    parser.add_argument("--timeout", type=float, default=default_s, metavar="SECONDS", help=text)


def split_topology(words: Sequence[str]) -> tuple[Path, list[str]]:
    """The first word is a topology if it is a file or is called like one; otherwise the one that runs is meant."""
    if words and (words[0].endswith(".toml") or Path(words[0]).is_file()):
        return Path(words[0]), list(words[1:])
    return running_topology(), list(words)


def choose_host(topology: "Topology", wanted: str | None) -> str:
    """Return which host of the deployment this machine is."""
    names = [host.name for host in topology.hosts]
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted not in names:
        problem = "has several hosts" if wanted is None else f"has no host {wanted!r}"
        raise UserError(f"{topology.path}: {problem}; say which one this is with --host {'|'.join(names)}")
    return wanted


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
