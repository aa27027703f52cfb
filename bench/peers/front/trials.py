"""What routers before servers are tried by: bursts, a server that dies, one that becomes slow. Then what is left of
those trials once disturbed ones are left out, and how two routers compare.
"""

import os
import random
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final

import httpx

from bench.harness.machine import Conditions, disturbed
from bench.live.sending import send, word_chats
from bench.live.servers import MODEL, Server
from bench.load.generator.wire import Pace, Shape
from bench.load.results.outcome import Outcome, Promise
from simulation.loads.arrival_processes import Arrivals, Process

BURSTS: Final = 3.0  # the coefficient of variation of gaps
LONG_SHARE: Final = 0.1
ANSWER_S: Final = 60.0
SLOW_S: Final = 12.0  # of the trial, from when one server is slow
FIRST_SLOW_S: Final = 2.0  # that a router has to notice it
WARM_UP: Final = 80  # requests: what learns has to learn something

Figures = dict[str, float]


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
    return tuple(islice(Arrivals(rate, Process.GAMMA, BURSTS).times(random.Random(seed)), number))


def sent(server: Server, load: Sequence[Shape], times_s: Sequence[float], seed: int) -> list[Outcome]:
    return send(server.address, word_chats(seed), load, Pace(tuple(times_s)), answer_s=ANSWER_S)


def warm_up(server: Server, setting: Setting, rate: float) -> None:
    """For a moment."""
    sent(server, setting.shapes(WARM_UP, -1), [1 / rate * number for number in range(WARM_UP)], -1)


def goodput(server: Server, setting: Setting, rate: float, seconds: float, seed: int) -> Figures:
    """Requests/s that kept their promises, and their share in percent."""
    number = round(rate * seconds)
    times_s = bursts(number, rate, seed)
    outcomes = sent(server, setting.shapes(number, seed), times_s, seed)
    kept = sum(one.keeps(setting.promise) for one in outcomes)
    return {f"goodput at {rate:g}/s": kept / times_s[-1], f"% kept at {rate:g}/s": 100 * kept / number}


def death(server: Server, victim: Server, seed: int, num_streams: int = 64) -> Figures:
    """Kill a server under streams, and count how many of them failed."""
    kill = threading.Timer(1.5, lambda: os.kill(victim.process.pid, signal.SIGKILL))
    kill.start()
    outcomes = sent(server, (Shape(MODEL, 32, 100),) * num_streams, [0.01 * n for n in range(num_streams)], seed)
    kill.join()
    return {f"failed of {num_streams}, one killed": float(sum(not outcome.is_finished for outcome in outcomes))}


def slowness(server: Server, setting: Setting, servers: Sequence[Server], rate: float, seed: int) -> Figures:
    """Slow the first server to a third. The share of promises kept from two seconds after that, and of the requests of
    that time that went there, in percent.
    """
    number = round(rate * SLOW_S)
    times_s = [n / rate for n in range(number)]
    noticed: list[list[int]] = []
    look = threading.Timer(FIRST_SLOW_S, lambda: noticed.append([_served(one) for one in servers]))
    servers[0].process.send_signal(signal.SIGUSR1)
    look.start()
    try:
        outcomes = sent(server, setting.shapes(number, seed), times_s, seed)
    finally:
        servers[0].process.send_signal(signal.SIGUSR2)
        look.join()
    counted = [outcome for outcome in outcomes if outcome.due_s >= FIRST_SLOW_S]
    went = [_served(one) - before for one, before in zip(servers, noticed[0], strict=True)]
    kept = 100 * sum(one.keeps(setting.promise) for one in counted) / len(counted)
    return {"% kept, one slow": kept, "% sent to the slow one": 100 * went[0] / sum(went)}


def _served(server: Server) -> int:
    """Return how many requests came to a mock backend."""
    return int(httpx.get(f"{server.url}/served", timeout=10.0).json()["served"])


# --- turns ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """What one router did in one trial of one round. In a round all have the same load."""

    router: str
    round: int
    trial: str
    figures: Figures
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Spread:
    """The median over rounds, between the least and the most."""

    values: Sequence[float]

    def text(self, digits: int = 1) -> str:
        if not self.values:
            return "-"
        middle = f"{median(self.values):.{digits}f}"
        if len(self.values) == 1:
            return middle
        return f"{middle} ({min(self.values):.{digits}f} to {max(self.values):.{digits}f})"


class Turns:
    """All turns that count."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        out = disturbed([turn.conditions for turn in turns])
        self._kept = [turn for turn, is_out in zip(turns, out, strict=True) if not is_out]
        self.num_left_out = sum(out)
        self.figures = list(dict.fromkeys(figure for turn in turns for figure in turn.figures))

    def spread(self, router: str, figure: str) -> Spread:
        """Return what a router's figure was, over the rounds."""
        return Spread([*self._values(router, figure).values()])

    def ratio(self, router: str, other: str, figure: str) -> Spread:
        """Return how many times another router's figure it had, of rounds in which both count."""
        ours, theirs = self._values(router, figure), self._values(other, figure)
        return Spread([value / theirs[number] for number, value in ours.items() if theirs.get(number)])

    def _values(self, router: str, figure: str) -> dict[int, float]:
        return {
            turn.round: turn.figures[figure] for turn in self._kept if turn.router == router and figure in turn.figures
        }
