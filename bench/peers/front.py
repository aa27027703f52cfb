"""Routers before servers that run already: promises kept under bursts, a server that dies, one that becomes slow.

    python -m bench.peers.front --routers FOLDER [--urls URL URL] [--rates R,R] [--ttft MS --tpot MS] [--json FILE]

``FOLDER`` holds the commands ``vllm-router`` and ``smg`` (PyPI, both of the same names). All routers stand before the
same two servers and take turns under the same load: chats of mixed lengths that arrive in bursts (gamma, CV 3), nine of
ten short, one of ten long. Without ``--urls`` the servers are mock backends that batch continuously; with them, the
trials that need to kill or slow a server are left out.

* goodput: requests/s that kept both promises, and the share of all that did
* death: a server is killed under streams; how many of them failed
* slow: a server's iterations take three times as long; the share of promises kept in the ten seconds from two after
  that, and of the requests of that time that went there
"""

import argparse
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from bench.gateway.servers import forwarding_gateway, mock_backend, others_router
from bench.harness.arguments import add_json, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.live.sending import send, word_chats
from bench.live.servers import MODEL, Server
from bench.load.generator.wire import Pace, Shape
from bench.load.results.outcome import Outcome, Promise
from mesh.errors import UserError

BURSTS = 1 / 9  # the gamma distribution's shape: a coefficient of variation of 3
LONG_SHARE = 0.1
ANSWER_S = 60.0
SLOW_S = 12.0  # of the trial, from when one server is slow
FIRST_SLOW_S = 2.0  # that a router has to notice it
OURS = "MeshServe gateway"
MAX_RUNNING = 64  # requests that our gateway gives a server at a time
MOCK = ("--step-ms", "12", "--token-us", "150", "--request-us", "250", "--max-running", "32")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is promised, and how long requests are: prompts are shorter by ``shorter`` than for a GPU."""

    promise: Promise
    shorter: float = 1.0

    def shapes(self, number: int, seed: int) -> tuple[Shape, ...]:
        """Requests of mixed lengths, in words and tokens."""
        stream, shorter = random.Random(seed), self.shorter
        return tuple(
            Shape(MODEL, round(stream.randint(600, 1200) / shorter), stream.randint(4, 16))
            if stream.random() < LONG_SHARE
            else Shape(MODEL, round(stream.randint(16, 128) / shorter), stream.randint(16, 96))
            for _ in range(number)
        )


def bursts(number: int, rate: float, seed: int) -> tuple[float, ...]:
    """Seconds at which they arrive."""
    stream, at_s, times_s = random.Random(seed), 0.0, list[float]()
    for _ in range(number):
        at_s += stream.gammavariate(BURSTS, 1 / (rate * BURSTS))
        times_s.append(at_s)
    return tuple(times_s)


def sent(server: Server, load: Sequence[Shape], times_s: Sequence[float], seed: int) -> list[Outcome]:
    return send(server.address, word_chats(seed), load, Pace(tuple(times_s)), answer_s=ANSWER_S)


def goodput(server: Server, setting: Setting, rate: float, number: int, seed: int) -> tuple[float, float]:
    """Return requests/s that kept their promises, and their share in percent."""
    times_s = bursts(number, rate, seed)
    outcomes = sent(server, setting.shapes(number, seed), times_s, seed)
    kept = sum(one.keeps(setting.promise) for one in outcomes)
    return kept / times_s[-1], 100 * kept / number


def death(server: Server, victim: Server, seed: int, num_streams: int = 64) -> float:
    """Kill a server under streams. Return how many of them failed."""
    kill = threading.Timer(1.5, lambda: os.kill(victim.process.pid, signal.SIGKILL))
    kill.start()
    outcomes = sent(server, (Shape(MODEL, 32, 100),) * num_streams, [0.01 * n for n in range(num_streams)], seed)
    kill.join()
    return float(sum(not outcome.is_finished for outcome in outcomes))


def slowness(
    server: Server, setting: Setting, servers: Sequence[Server], rate: float, seed: int
) -> tuple[float, float]:
    """Slow the first server to a third. Return the share of promises kept from two seconds after that, and of the
    requests of that time that went there, in percent.
    """
    number = round(rate * SLOW_S)
    times_s = [n / rate for n in range(number)]
    noticed: list[list[int]] = []
    look = threading.Timer(FIRST_SLOW_S, lambda: noticed.append([served(one) for one in servers]))
    servers[0].process.send_signal(signal.SIGUSR1)
    look.start()
    try:
        outcomes = sent(server, setting.shapes(number, seed), times_s, seed)
    finally:
        servers[0].process.send_signal(signal.SIGUSR2)
        look.join()
    counted = [outcome for outcome in outcomes if outcome.due_s >= FIRST_SLOW_S]
    went = [served(one) - before for one, before in zip(servers, noticed[0], strict=True)]
    return 100 * sum(one.keeps(setting.promise) for one in counted) / len(counted), 100 * went[0] / sum(went)


def served(server: Server) -> int:
    """Return how many requests came to a mock backend."""
    return int(httpx.get(f"{server.url}/served", timeout=10.0).json()["served"])


def router(name: str, urls: Sequence[str], folder: Path, promise: Promise) -> AbstractContextManager[Server]:
    """One router before the servers. ``name``: the router's, and its policy."""
    program, policy = name.split(", ")
    if program != OURS:
        return others_router(program, folder, urls, policy)
    promise_ms = 1e3 * (promise.ttft_s or 0), 1e3 * (promise.tpot_s or 0)
    return forwarding_gateway(name, urls, promise_ms, policy, MAX_RUNNING)


def compare(options: argparse.Namespace, names: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Each figure of each router, one value a round."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for turn in range(options.rounds):
        for name in names:
            for figure, value in _round(options, name, turn):
                found[name].setdefault(figure, []).append(value)
            now = ", ".join(f"{figure}: {values[-1]:.2f}" for figure, values in found[name].items())
            print(f"round {turn + 1} of {options.rounds}: {name}: {now}", file=sys.stderr)
            write_json(options.json, found)  # what is there stays, if the next one does not end
    return found


def _round(options: argparse.Namespace, name: str, seed: int) -> Iterator[tuple[str, float]]:
    setting = Setting(Promise(options.ttft / 1e3, options.tpot / 1e3), options.shorter)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(mock_backend(f"server {index}", *MOCK)) for index in range(0 if options.urls else 2)
        ]
        urls = options.urls or [server.url for server in servers]
        server = stack.enter_context(router(name, urls, options.routers, setting.promise))
        pause_s = 4 / options.rates[0]
        sent(server, setting.shapes(20, -1), [pause_s * n for n in range(20)], -1)  # what learns has to learn something
        for rate in options.rates:
            per_s, share = goodput(server, setting, rate, round(rate * options.seconds), seed)
            yield f"goodput at {rate:g}/s", per_s
            yield f"% kept at {rate:g}/s", share
        if servers:
            kept, went = slowness(server, setting, servers, options.rates[0], seed)
            yield "% kept, one slow", kept
            yield "% sent to the slow one", went
            yield "failed of 64, one killed", death(server, servers[1], seed)


def _rates(text: str) -> list[float]:
    return [float(rate) for rate in text.split(",")]


def main() -> None:
    parser = script_parser("bench.peers.front", __doc__)
    parser.add_argument("--routers", type=Path, metavar="FOLDER", help="holds vllm-router and smg")
    parser.add_argument(
        "--urls",
        nargs="+",
        metavar="URL",
        help="of servers that run and call their model `model` (default: two mock backends)",
    )
    parser.add_argument(
        "--rates", type=_rates, default="22,34,48", metavar="R,R", help="requests/s (default: 22,34,48)"
    )
    parser.add_argument("--ttft", type=float, default=1000.0, metavar="MS", help="promised (default: 1000)")
    parser.add_argument("--tpot", type=float, default=50.0, metavar="MS", help="promised (default: 50)")
    parser.add_argument("--shorter", type=float, default=1.0, metavar="N", help="times, prompts are (default: 1)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of each rate (default: 30)")
    parser.add_argument("--policies", default="elastic", metavar="P,P", help="of ours (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    add_json(parser)
    options = parser.parse_args()
    names = [f"{OURS}, {policy}" for policy in options.policies.split(",")]
    if options.routers:
        names += [f"{name}, {policy}" for name in ("vllm-router", "smg") for policy in ("cache_aware", "power_of_two")]
    with errors_in_a_line():
        found = compare(options, names)
        if not all(found.values()):
            raise UserError("nothing was measured")
    figures = list(next(iter(found.values())))
    rows = ([name, *(f"{median(values[figure]):.2f}" for figure in figures)] for name, values in found.items())
    print_table("medians", ("",), figures, rows)


if __name__ == "__main__":
    main()
