"""How a run went over time: rates, requests in flight and attainment, by slices of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from bench.load.results.goodput import Promises
from bench.load.results.measures import token_times
from bench.load.results.outcome import Outcome

MOST_SLICES = 120
SHOWN = ("ttft", "tpot")


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
    latencies_s: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of finished requests that were due in it

    def json(self, *, has_promises: bool) -> dict[str, float | None]:
        return {
            "at_s": self.at_s,
            "arrivals_per_s": self.arrived / self.width_s,
            "lost_per_s": self.lost / self.width_s,
            "attainment": self.kept / self.arrived if self.arrived and has_promises else None,
            "tokens_per_s": self.tokens / self.width_s,
            "in_flight": self.in_flight,
            **{
                f"{name}_{key}_ms": 1e3 * float(np.percentile(values, percent)) if values else None
                for key, values in self.latencies_s.items()
                for name, percent in (("median", 50), ("p90", 90))
            },
        }


def slices(outcomes: Sequence[Outcome], promises: Promises) -> list[Slice]:
    """Of equal width, a second at least."""
    end_s = max((one.ended_s for one in outcomes), default=0.0)
    if end_s <= 0:
        return []
    width_s = max(1.0, end_s / MOST_SLICES)
    count = ceil(end_s / width_s)
    arrived, lost, kept, tokens, busy_s = ([0.0] * count for _ in range(5))
    latencies_s: list[dict[str, list[float]]] = [{key: [] for key in SHOWN} for _ in range(count)]
    for one in outcomes:
        index = _index(one.due_s, width_s, count)
        arrived[index] += 1
        lost[index] += not one.is_finished
        for key, value_s in zip(SHOWN, (one.ttft_s, one.tpot_s), strict=True):
            if one.is_finished and value_s is not None:
                latencies_s[index][key].append(value_s)
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
            latencies_s[place],
        )
        for place in range(count)
    ]


def _index(at_s: float, width_s: float, count: int) -> int:
    return min(count - 1, max(0, int(at_s / width_s)))
