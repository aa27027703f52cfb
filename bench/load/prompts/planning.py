"""What is sent, and when: shapes of requests and the times at which they are due."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from random import Random

import msgspec

from bench.load.generator.wire import Pace, Shape, dealt
from bench.load.results.outcome import Promise
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens, drawn evenly between bounds."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]

    def draw(self, number: int, random: Random) -> list[TraceRequest]:
        return [TraceRequest(0.0, random.randint(*self.inputs), random.randint(*self.outputs)) for _ in range(number)]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is sent: so many, or for so long, or whichever comes first. One at least is given."""

    num_requests: int | None = None
    duration_s: float | None = None

    def times(self, arrivals: Arrivals | None, random: Random) -> list[float]:
        """When requests are due; None: all at once, and then they are counted."""
        if arrivals is None:
            return [0.0] * (self.num_requests or 0)
        times = arrivals.times(random)
        if self.duration_s is not None:
            times = takewhile(lambda at_s: at_s < self.duration_s, times)  # type: ignore[operator]
        return list(islice(times, self.num_requests))

    def cut(self, requests: Sequence[TraceRequest]) -> list[TraceRequest]:
        """Of a trace."""
        chosen = [one for one in requests if self.duration_s is None or one.at_s < self.duration_s]
        return chosen[: self.num_requests]


def shape_of(request: TraceRequest, model: str) -> Shape:
    """Of a request, with the promises that it brings and the later turns of its conversation."""
    return msgspec.structs.replace(_alone(request, model), then=tuple(_turn(turn, model) for turn in request.then))


def _turn(request: TraceRequest, model: str) -> Shape:
    return msgspec.structs.replace(_alone(request, model), at_s=request.at_s)


def _alone(request: TraceRequest, model: str) -> Shape:
    promise = Promise(ttft_s=request.slo_ttft_s, tpot_s=request.slo_tpot_s)
    return Shape(
        model,
        request.num_input,
        request.num_output,
        request.blocks,
        None if promise.is_empty else promise,
        request.priority,
        think_s=request.think_s,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run. ``pace.due_s`` has a time for each shape, or is None. ``is_stationary``: what comes late is like
    what comes early, as in no trace. ``rate``: requests or conversations a second, where a described load says so.
    """

    shapes: tuple[Shape, ...]
    pace: Pace
    is_stationary: bool = True
    rate: float | None = None

    @property
    def is_closed(self) -> bool:
        """Does a request wait until another one has ended?"""
        return self.pace.due_s is None

    def part(self, index: int, num_parts: int) -> "Plan":
        """What one of several processes sends: every ``num_parts``-th request, and its share of the slots."""
        pace, slots = self.pace, self.pace.num_slots
        return Plan(
            self.shapes[index::num_parts],
            Pace(
                None if pace.due_s is None else pace.due_s[index::num_parts],
                None if slots is None else list(dealt(slots, num_parts))[index],
                pace.duration_s,
            ),
            self.is_stationary,
        )

    def num_parts(self, wanted: int) -> int:
        """No process without a request or a slot."""
        return max(1, min(wanted, len(self.shapes), self.pace.num_slots or wanted))

    @property
    def num_requests(self) -> int:
        """In a closed loop that ends by time, before they come again."""
        return sum(1 + len(shape.then) for shape in self.shapes)

    @property
    def most_turns(self) -> int:
        return max((1 + len(shape.then) for shape in self.shapes), default=1)

    @property
    def span_s(self) -> float | None:
        """Until the last request is due; None if that is not known before."""
        if self.pace.due_s is None:
            return self.pace.duration_s
        return self.pace.due_s[-1]


def with_models(requests: Sequence[TraceRequest], model: str) -> list[TraceRequest]:
    """Those that name no service ask for this one."""
    return [request if request.service else request.asking(model) for request in requests]
