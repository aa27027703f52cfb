"""Routers before servers that run already: promises kept under bursts, a server that dies, one that becomes slow.

    python -m bench.peers.front --routers FOLDER [--urls URL URL] [--rates R,R] [--rounds N] [--seconds S]
        [--ttft MS --tpot MS] [--json FILE]

``FOLDER`` holds the commands ``vllm-router`` and ``smg`` (PyPI, both of the same names). All routers stand before the
same two servers and take short turns under the same load: chats of mixed lengths that arrive in bursts (gamma, CV 3),
nine of ten short, one of ten long. Without ``--urls`` the servers are mock backends that batch continuously; with them,
the trials that need to kill or slow a server are left out.

* goodput: requests/s that kept both promises, and the share of all that did
* slow: a server's iterations take three times as long; the share of promises kept in the ten seconds from two after
  that, and of the requests of that time that went there
* death: a server is killed under streams; how many of them failed. A minute is promised there: nobody refuses any

Figures are medians over rounds, with the least and the most. Beside each turn a reference spins, and CPU time of others
is counted; turns in which the machine was disturbed are left out (`bench.harness.machine`).
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from bench.gateway.servers import forwarding_gateway, mock_backend, others_router
from bench.harness.arguments import errors_in_a_line, number_list, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import turned
from bench.harness.machine import RULE, watched
from bench.harness.tables import print_table
from bench.live.servers import Server
from bench.load.results.outcome import Promise
from bench.peers.front.trials import Figures, Setting, Turn, Turns, death, goodput, slowness, warm_up
from mesh.errors import UserError

OURS = "MeshServe gateway"
RIVALS = ("vllm-router", "smg")
MAX_RUNNING = 64  # requests that our gateway gives a server at a time
A_MINUTE = Promise(60.0, 60.0)
SLOW_RATE = 22.0  # requests/s, where a server becomes slow
MOCK = ("--step-ms", "12", "--token-us", "150", "--request-us", "250", "--max-running", "32")


def router(name: str, urls: Sequence[str], folder: Path, promise: Promise) -> AbstractContextManager[Server]:
    """One router before the servers. ``name``: the router's, and its policy."""
    program, policy = name.split(", ")
    if program != OURS:
        return others_router(program, folder, urls, policy)
    promise_ms = 1e3 * (promise.ttft_s or 0), 1e3 * (promise.tpot_s or 0)
    return forwarding_gateway(name, urls, promise_ms, policy, MAX_RUNNING)


def mock_pair(stack: ExitStack) -> list[Server]:
    return [stack.enter_context(mock_backend(f"server {index}", *MOCK)) for index in range(2)]


class Comparison:
    """Plays all turns. ``done``: those until now."""

    def __init__(self, options: argparse.Namespace, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._setting = Setting(Promise(options.ttft / 1e3, options.tpot / 1e3), options.shorter)
        self.done: list[Turn] = []

    def run(self) -> None:
        """Bursts in turns, then a slow server in turns, then deaths, each before servers of its own."""
        options = self._options
        with ExitStack() as stack:
            servers = [] if options.urls else mock_pair(stack)
            routers = dict(self._started(stack, options.urls or [server.url for server in servers]))
            for number in range(options.rounds):
                for rate in options.rates:
                    self._burst(routers, rate, number)
            for number in range(options.slow_rounds if servers else 0):
                self._slow(routers, servers, number)
        for name in () if options.urls else self._names:
            self._kill(name)

    def _burst(self, routers: Mapping[str, Server], rate: float, number: int) -> None:
        seconds = self._options.seconds
        for name in turned(self._names, number):
            measure = partial(goodput, routers[name], self._setting, rate, seconds, number)
            self._play(name, number, f"{rate:g}/s", measure)

    def _slow(self, routers: Mapping[str, Server], servers: Sequence[Server], number: int) -> None:
        for name in turned(self._names, number):
            measure = partial(slowness, routers[name], self._setting, servers, SLOW_RATE, number)
            self._play(name, number, "slow", measure)

    def _kill(self, name: str) -> None:
        with ExitStack() as stack:
            servers = mock_pair(stack)
            urls = [server.url for server in servers]
            server = stack.enter_context(router(name, urls, self._options.routers, A_MINUTE))
            self._play(name, 0, "death", partial(death, server, servers[1], 0))

    def _started(self, stack: ExitStack, urls: Sequence[str]) -> Iterator[tuple[str, Server]]:
        """All routers, each warm."""
        for name in self._names:
            server = stack.enter_context(router(name, urls, self._options.routers, self._setting.promise))
            warm_up(server, self._setting, SLOW_RATE)
            yield name, server

    def _play(self, name: str, number: int, trial: str, measure: Callable[[], Figures]) -> None:
        """Play a turn and note it. What is there stays, if the next one does not end."""
        with watched() as conditions:
            figures = measure()
        self.done.append(Turn(name, number, trial, figures, conditions))
        said = ", ".join(f"{figure}: {value:.1f}" for figure, value in figures.items())
        about = f"pace {conditions.pace:.0f}, others {conditions.others:.2f}"
        print(f"round {number + 1}, {trial}: {name}: {said} ({about})", file=sys.stderr)
        write_json(self._options.json, {"left out if": RULE, "turns": self.done})


def report(turns: Turns, names: Sequence[str]) -> None:
    """Print the figures of each router, and how many times another one's goodput ours had."""
    rows = ([name, *(turns.spread(name, figure).text() for figure in turns.figures)] for name in names)
    print_table("medians (least to most)", ("",), turns.figures, rows, width=200)
    goodputs = [figure for figure in turns.figures if figure.startswith("goodput")]
    ours, others = [one for one in names if one.startswith(OURS)], [one for one in names if not one.startswith(OURS)]
    pairs = ((one, other) for one in ours for other in others)
    compared = (
        [f"{one} / {other}", *(turns.ratio(one, other, figure).text(2) for figure in goodputs)] for one, other in pairs
    )
    print_table("times as much, in the same rounds", ("",), goodputs, compared, width=200)
    print(f"{turns.num_left_out} turns are left out: {RULE}")


def _parser() -> argparse.ArgumentParser:
    parser = script_parser("bench.peers.front", __doc__, rounds=5, json=True)
    parser.add_argument("--routers", type=Path, metavar="FOLDER", help="holds vllm-router and smg")
    parser.add_argument(
        "--urls",
        nargs="+",
        metavar="URL",
        help="of servers that run and call their model `model` (default: two mock backends)",
    )
    parser.add_argument(
        "--rates", type=number_list, default=(34, 48), metavar="R,R", help="requests/s (default: 34,48)"
    )
    parser.add_argument("--ttft", type=float, default=1000.0, metavar="MS", help="promised (default: 1000)")
    parser.add_argument("--tpot", type=float, default=50.0, metavar="MS", help="promised (default: 50)")
    parser.add_argument("--shorter", type=float, default=1.0, metavar="N", help="times, prompts are (default: 1)")
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of a turn (default: 8)")
    parser.add_argument("--policies", default="elastic", metavar="P,P", help="of ours (default: %(default)s)")
    parser.add_argument("--slow-rounds", type=int, default=2, metavar="N", help="with a slow server (default: 2)")
    return parser


def main() -> None:
    options = _parser().parse_args()
    names = [f"{OURS}, {policy}" for policy in options.policies.split(",")]
    if options.routers:
        names += [f"{name}, {policy}" for name in RIVALS for policy in ("cache_aware", "power_of_two")]
    comparison = Comparison(options, names)
    with errors_in_a_line():
        comparison.run()
        turns = Turns(comparison.done)
        if turns.num_left_out == len(comparison.done):
            raise UserError(f"no turn counts: in each, {RULE}")
    report(turns, names)


if __name__ == "__main__":
    main()
