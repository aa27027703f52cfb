"""How a run went over time: rates, requests in flight and attainment, by slices of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from bench.load.results.goodput import Promises
from bench.load.results.measures import token_times
from bench.load.results.outcome import Outcome

MOST_SLICES = 120


@dataclass(frozen=True, slots=True)
class Slice:
    """From ``at_s`` on. Arrivals, lost ones and attainment are of requests that were due in it."""

    at_s: float
    width_s: float
    arrived: int
    lost: int
    kept: int
    tokens: int
    in_flight: float  # on average

    def json(self, *, has_promises: bool) -> dict[str, float | None]:
        return {
            "at_s": self.at_s,
            "arrivals_per_s": self.arrived / self.width_s,
            "lost_per_s": self.lost / self.width_s,
            "attainment": self.kept / self.arrived if self.arrived and has_promises else None,
            "tokens_per_s": self.tokens / self.width_s,
            "in_flight": self.in_flight,
        }


def slices(outcomes: Sequence[Outcome], promises: Promises) -> list[Slice]:
    """Of equal width, a second at least."""
    end_s = max((one.ended_s for one in outcomes), default=0.0)
    if end_s <= 0:
        return []
    width_s = max(1.0, end_s / MOST_SLICES)
    count = ceil(end_s / width_s)
    arrived, lost, kept, tokens, busy_s = ([0.0] * count for _ in range(5))
    for one in outcomes:
        index = _index(one.due_s, width_s, count)
        arrived[index] += 1
        lost[index] += not one.is_finished
        kept[index] += promises.is_kept(one)
        for at_s in token_times(one):
            tokens[_index(at_s, width_s, count)] += 1
        for place in range(_index(one.sent_s, width_s, count), _index(one.ended_s, width_s, count) + 1):
            begin_s, stop_s = place * width_s, (place + 1) * width_s
            busy_s[place] += max(0.0, min(stop_s, one.ended_s) - max(begin_s, one.sent_s))
    return [
        Slice(
            place * width_s,
            width_s,
            int(arrived[place]),
            int(lost[place]),
            int(kept[place]),
            int(tokens[place]),
            busy_s[place] / width_s,
        )
        for place in range(count)
    ]


def _index(at_s: float, width_s: float, count: int) -> int:
    return min(count - 1, max(0, int(at_s / width_s)))
