"""Where requests come from: traces of a folder with public data, or made-up ones that are like them.

The folder has conversations of Azure and Mooncake, clients of ServeGen and files of lengths (docs/results/combined.md).
Without one, arrivals are Poisson, or in bursts, and lengths are lognormal with the medians of the files.
"""

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from math import log
from pathlib import Path
from random import Random

from simulation.loads.arrival_processes import Arrivals, Process
from simulation.loads.rows import TraceError
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths, load_trace

CV = 2.0  # coefficient of variation of gaps between made-up arrivals in bursts
SERVEGEN_SPAN_S = 7200.0  # of its two days, that one run is made of
SERVEGEN_WINDOW_S = 600.0
NUM_BEGINNINGS, SHARED_BLOCKS = 50, 2  # of made-up documents, and blocks of each


class Pattern(StrEnum):
    """Whose arrivals a service has."""

    AZURE = "azure"
    SERVEGEN = "servegen"
    MOONCAKE = "mooncake"


@dataclass(frozen=True, slots=True)
class Source:
    """Arrivals of one kind with lengths of one kind.

    ``lengths``: a file of the folder; None: those of the arrivals' own requests. ``medians``: of prompts and answers,
    in tokens, where there is no folder. Longer ones than ``most`` are cut.
    """

    pattern: Pattern
    lengths: str | None
    medians: tuple[int, int]
    spread: float  # standard deviation of the logarithms of made-up lengths
    most: tuple[int, int]

    def requests(self, data: Path | None, number: int, random: Random) -> list[TraceRequest]:
        """Draw so many requests in order of arrival, from 0 to 1 in any unit of time. Raise `TraceError`."""
        drawn = self._made_up(number, random) if data is None else self._recorded(data, number, random)
        span = drawn[-1].at_s or 1.0
        return [self._cut(replace(one, at_s=one.at_s / span)) for one in drawn]

    def _cut(self, request: TraceRequest) -> TraceRequest:
        prompt, answer = self.most
        return replace(request, num_input=min(prompt, request.num_input), num_output=min(answer, request.num_output))

    def _made_up(self, number: int, random: Random) -> list[TraceRequest]:
        process = Process.POISSON if self.pattern is Pattern.AZURE else Process.GAMMA
        times = Arrivals(1.0, process, CV).times(random)
        shares = self.pattern is Pattern.MOONCAKE
        return [self._made_up_one(next(times), shares, random) for _ in range(number)]

    def _made_up_one(self, at_s: float, shares: bool, random: Random) -> TraceRequest:
        prompt, answer = (max(2, round(random.lognormvariate(log(median), self.spread))) for median in self.medians)
        first = SHARED_BLOCKS * random.randrange(NUM_BEGINNINGS)
        return TraceRequest(at_s, prompt, answer, tuple(range(first, first + SHARED_BLOCKS)) if shares else ())

    def _recorded(self, data: Path, number: int, random: Random) -> list[TraceRequest]:
        if self.pattern is Pattern.SERVEGEN:
            times = _servegen_times(data, number, random)
            lengths = _pool(data / (self.lengths or ""))
            return [replace(random.choice(lengths), at_s=at_s) for at_s in times]
        trace = _trace(data / TRACES[self.pattern])
        if len(trace) < number:
            raise TraceError(f"{data / TRACES[self.pattern]}: has {len(trace)} requests; {number} are needed")
        first = random.randrange(len(trace) - number + 1)
        part = [replace(one, at_s=one.at_s - trace[first].at_s) for one in trace[first : first + number]]
        if self.lengths is None:
            return part
        lengths = _pool(data / self.lengths)
        return [replace(random.choice(lengths), at_s=one.at_s) for one in part]


TRACES: Mapping[Pattern, str] = {
    Pattern.AZURE: "azure2023_conv/AzureLLMInferenceTrace_conv.csv",
    Pattern.MOONCAKE: "mooncake_conversation/conversation_trace.jsonl.gz",
}
SERVEGEN = "servegen_mlarge_arrivals/arrivals_2days.csv.gz"


@cache
def _trace(path: Path) -> Sequence[TraceRequest]:
    return load_trace(path, Random("spread"))


@cache
def _pool(path: Path) -> Sequence[TraceRequest]:
    return load_lengths(path)


# --- ServeGen ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientWindow:
    """What one client does for ten minutes: gaps between its requests are gamma with this coefficient of variation."""

    client: str
    start_s: float
    rate: float
    cv: float


@cache
def _windows(path: Path) -> Sequence[ClientWindow]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return [
                ClientWindow(row["client"], float(row["window_start_s"]), float(row["rate_rps"]), float(row["cv"]))
                for row in csv.DictReader(file)
            ]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    except (KeyError, ValueError) as error:
        raise TraceError(f"{path}: want client, window_start_s, rate_rps and cv in each row: {error}") from None


def _servegen_times(data: Path, number: int, random: Random) -> list[float]:
    """Times of ``number`` requests of its clients within two of its hours, each client's with bursts of its own."""
    windows = _windows(data / SERVEGEN)
    last = max(one.start_s for one in windows) - SERVEGEN_SPAN_S
    first = random.randrange(int(last // SERVEGEN_WINDOW_S) + 1) * SERVEGEN_WINDOW_S
    chosen = [one for one in windows if first <= one.start_s < first + SERVEGEN_SPAN_S]
    total = sum(one.rate for one in chosen) * SERVEGEN_WINDOW_S
    times: list[float] = []
    for one in chosen:
        expected = number * one.rate * SERVEGEN_WINDOW_S / total
        times += [one.start_s - first + at_s for at_s in _within(expected, max(1.0, one.cv), random)]
    while len(times) < number:
        times.append(random.uniform(0, SERVEGEN_SPAN_S))
    return sorted(random.sample(times, number))


def _within(expected: float, cv: float, random: Random) -> list[float]:
    """Times in one window of about ``expected`` requests."""
    gap_s, shape = SERVEGEN_WINDOW_S / expected, 1 / cv**2
    times, at_s = [], random.uniform(0, 1) * random.gammavariate(shape, gap_s / shape)
    while at_s < SERVEGEN_WINDOW_S:
        times.append(at_s)
        at_s += random.gammavariate(shape, gap_s / shape)
    return times
