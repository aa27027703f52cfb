"""``mesh logs``: the logs of a mesh's processes, readable, in the order of time."""

import argparse
import heapq
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology, print_line
from mesh.errors import EXIT_FAILURE, UserError
from mesh.suggestions import suggestion

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.cluster.log_sources import LogSource
    from mesh.process.log_reader import LogPage

FOLLOW_S = 0.2  # files cannot be awaited: how often to look for more


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("logs", help="show the logs of processes: on this machine, or on all that Ray holds")
    parser.add_argument("process", nargs="?", metavar="PROCESS", help="only this one, such as `prefill` or `decode-0`")
    add_topology(parser, option=True, running=True)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is logged from now on")
    parser.add_argument("-n", "--lines", type=int, default=200, metavar="N", help="the last N lines (default: 200)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.addresses import runtime_dir
    from mesh.cluster.log_sources import log_sources
    from mesh.topology.parse import load

    if options.process is not None and ("/" in options.process or options.process.endswith(".toml")):
        raise UserError(f"{options.process} is no process; name a topology with --topology {options.process}")
    topology = load(options.file)
    sources = log_sources(topology)
    found = {source: source.last(options.process, options.lines) for source in sources}
    pages = {source: page for source, page in found.items() if page is not None}
    if not pages:
        known = sorted({process for source in sources for process in source.processes()})
        hint = f"; {suggestion(options.process or '', known)}" if known else ""
        where = f" in {runtime_dir(topology) / 'logs'}" if topology.cluster is None else ""
        sys.stderr.write(f"no logs of {options.process or 'this mesh'}{where}{hint}\n")
        return EXIT_FAILURE
    for line in deque(heapq.merge(*(page.lines for page in pages.values())), maxlen=max(0, options.lines)):
        print_line(line.text)
    if options.follow:
        _follow(options.process, pages)
    return 0


def _follow(process: str | None, pages: "Mapping[LogSource, LogPage]") -> None:
    """Until Ctrl-C."""
    positions = {source: page.positions for source, page in pages.items()}
    while True:
        time.sleep(FOLLOW_S)
        more = {source: source.more(process, positions[source]) for source in positions}
        heard = {source: page for source, page in more.items() if page is not None}
        positions |= {source: page.positions for source, page in heard.items()}
        for line in heapq.merge(*(page.lines for page in heard.values())):
            print_line(line.text)
