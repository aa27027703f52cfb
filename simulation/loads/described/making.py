"""Makes the requests of a described load: the same ones for the same seed, whoever plays them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from math import log, sqrt
from random import Random

from simulation.loads.arrival_processes import Arrivals
from simulation.loads.closed_loop import POOL, asked_requests
from simulation.loads.described.description import ConversationsTable, LoadDescription, LoadTable, PhaseTable
from simulation.loads.mix import Mix
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths

NUM_INPUT, NUM_OUTPUT = 256, 64  # tokens of a prompt and an answer, where the file says nothing
HALVINGS = 50  # of a range of probabilities
DrawOne = Callable[[Random], TraceRequest]


def described_requests(load: LoadDescription, seed: int, mix: Mix | None) -> list[TraceRequest]:
    """Return the requests with the times at which they are due, or with times to think in a closed loop; later turns of
    conversations hang on their first ones. Raise `TraceError` for lengths that cannot be read.
    """
    table, draw_one = load.table, _lengths(load)
    due_s = None if table.clients is not None else _due_s(table, Random(f"{seed}/times"))
    number = len(due_s) if due_s is not None else table.requests or POOL
    talking, talks = Random(f"{seed}/turns"), table.conversations
    going_on = 0.0 if talks is None else _going_on(talks.turns, talks.most_turns)

    def draw(random: Random) -> list[TraceRequest]:
        return [_conversation(talks, going_on, lambda: draw_one(random), talking) for _ in range(number)]

    think_s = 0.0 if table.clients is None else table.clients.think_s
    requests = list(asked_requests(draw, think_s, mix, seed))
    if due_s is None:
        return requests
    return [replace(request, at_s=at_s) for request, at_s in zip(requests, due_s, strict=True)]


def _lengths(load: LoadDescription) -> DrawOne:
    tokens = load.table.tokens
    if load.lengths is not None:
        pool = load_lengths(load.lengths)
        return lambda random: replace(random.choice(pool), at_s=0.0)
    inputs, outputs = _bounds(tokens.input or NUM_INPUT), _bounds(tokens.output or NUM_OUTPUT)
    return lambda random: TraceRequest(0.0, random.randint(*inputs), random.randint(*outputs))


def _bounds(given: int | list[int]) -> tuple[int, int]:
    return (given, given) if isinstance(given, int) else (given[0], given[1])


# --- turns ------------------------------------------------------------------------------------------------------------


def _conversation(
    table: ConversationsTable | None, going_on: float, draw: Callable[[], TraceRequest], random: Random
) -> TraceRequest:
    """Each prompt is the one before it, as many tokens as its answer had, and what is drawn."""
    first = draw()
    if table is None:
        return first
    turns: list[TraceRequest] = [replace(first, blocks=())]
    for _ in range(_num_turns(going_on, table.most_turns, random) - 1):
        last, drawn = turns[-1], draw()
        think_s = random.expovariate(1 / table.think_s) if table.think_s else 0.0
        num_input = last.num_input + last.num_output + drawn.num_input
        turns.append(replace(drawn, num_input=num_input, blocks=(), think_s=think_s))
    return replace(turns[0], then=tuple(turns[1:]))


def _num_turns(going_on: float, most: int, random: Random) -> int:
    """Geometrically distributed, from 1 to ``most``."""
    if going_on in {0.0, 1.0}:
        return most if going_on else 1
    return min(1 + int(log(1 - random.random()) / log(going_on)), most)


def _going_on(mean: float, most: int) -> float:
    """The probability of one more turn with which ``most`` turns at most are ``mean`` on average."""
    if mean in {1.0, float(most)}:
        return float(mean > 1)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if (1 - middle**most) / (1 - middle) < mean:
            low = middle
        else:
            high = middle
    return low


# --- times ------------------------------------------------------------------------------------------------------------


def _due_s(table: LoadTable, random: Random) -> list[float]:
    arrivals = table.arrivals
    process = Arrivals(1.0) if arrivals is None else Arrivals(arrivals.rate or 1.0, arrivals.process, arrivals.cv)
    if table.phases:
        times: Iterator[float] = in_phases(process.times(random), table.phases)
    else:
        duration_s = table.duration_s
        times = process.times(random)
        if duration_s is not None:
            times = takewhile(lambda at_s: at_s < duration_s, times)
    return list(islice(times, table.requests))


def in_phases(even: Iterator[float], phases: Sequence[PhaseTable]) -> Iterator[float]:
    """Move times of one arrival a second to where the phases have as many arrivals to expect, until their end."""
    begin_s, before = 0.0, 0.0
    at = next(even)
    for phase in phases:
        after = before + phase.num_expected
        while at < after:
            yield begin_s + _when(phase, at - before)
            at = next(even)
        begin_s, before = begin_s + phase.for_s, after


def _when(phase: PhaseTable, expected: float) -> float:
    """Seconds into a phase until so many arrivals are to be expected: the rate's integral, inverted."""
    slope = (phase.last_rate - phase.rate) / phase.for_s
    if slope == 0:
        return expected / phase.rate
    return 2 * expected / (phase.rate + sqrt(max(0.0, phase.rate**2 + 2 * slope * expected)))
