"""Counts how promises were kept of late, in buckets of some seconds, by service and key."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from router.feed.frames import PromiseBucket, PromisesFrame, Quantiles
from router.history.records import Outcome
from router.history.summary import record_of
from router.history.timeline import FirstToken, RequestTimeline
from router.history.timelines import Timelines

BUCKET_S: Final = 5
KEPT_BUCKETS: Final = 180  # a quarter of an hour
MOST_KEYS: Final = 16  # of one bucket by name; the others are counted together
OTHERS: Final = "(others)"
SAMPLES: Final = 1024  # of one bucket, for its quantiles


@dataclass(slots=True)
class _Sums:
    """`PromiseBucket`, while it grows."""

    ended: int = 0
    kept_ttft: int = 0
    kept_tpot: int = 0
    kept: int = 0
    not_served: int = 0
    tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    prediction: list[float] = field(default_factory=list)

    def take(self, timeline: RequestTimeline) -> None:
        if timeline.facts.is_filler:
            return
        record = record_of(timeline)
        self.ended += 1
        self.kept_ttft += record.meets_ttft
        self.kept_tpot += record.meets_tpot
        self.kept += record.meets_slo
        if record.outcome is not Outcome.FINISHED:
            self.not_served += 1
            return
        self.tokens += record.output_tokens
        _sample(self.ttft_s, record.ttft_s)
        _sample(self.tpot_s, record.tpot_s)
        first = next((event for event in timeline.events if isinstance(event, FirstToken)), None)
        if first is not None and first.predicted_s > 0:
            _sample(self.prediction, first.since_dispatch_s / first.predicted_s)

    def told(self, at: float, service: str, key: str) -> PromiseBucket:
        return PromiseBucket(
            at,
            service,
            key,
            self.ended,
            self.kept_ttft,
            self.kept_tpot,
            self.kept,
            self.not_served,
            self.tokens,
            _quantiles(self.ttft_s),
            _quantiles(self.tpot_s),
            _quantiles(self.prediction),
        )


def _sample(samples: list[float], value: float | None) -> None:
    if value is not None and len(samples) < SAMPLES:
        samples.append(value)


def _quantiles(samples: Sequence[float]) -> Quantiles | None:
    """Return quantiles by the nearest ranks."""
    if not samples:
        return None
    ordered = sorted(samples)
    return Quantiles(*(ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 0.99)))


class _Bucket:
    """Everything that ended in the same seconds."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.sums: dict[tuple[str, str], _Sums] = {}
        self.changed: set[tuple[str, str]] = set()

    def take(self, timeline: RequestTimeline) -> None:
        facts = timeline.facts
        name = facts.service, facts.tenant
        if name not in self.sums and len(self.sums) >= MOST_KEYS:
            name = facts.service, OTHERS
        self.changed.add(name)
        self.sums.setdefault(name, _Sums()).take(timeline)

    def told(self, names: Iterable[tuple[str, str]]) -> list[PromiseBucket]:
        return [self.sums[name].told(self.at, *name) for name in sorted(names)]


class PromiseSeries:
    """Buckets of one gateway's last minutes, from what its timelines remember. ``wall``: as in `Travels`."""

    def __init__(self, timelines: Timelines, wall: Callable[[float], float]) -> None:
        self._timelines = timelines
        self._wall = wall
        self._num_ended = 0
        self._buckets: deque[_Bucket] = deque(maxlen=KEPT_BUCKETS)

    def __repr__(self) -> str:
        return f"<PromiseSeries {len(self._buckets)} buckets>"

    def look(self, now: float) -> PromisesFrame | None:
        """Buckets that changed since the last look; None: none did."""
        self._take_new()
        told = [bucket for one in self._buckets if one.changed for bucket in one.told(one.changed)]
        for one in self._buckets:
            one.changed.clear()
        return PromisesFrame(self._wall(now), BUCKET_S, told) if told else None

    def all(self, now: float) -> PromisesFrame:
        """Return all buckets as they were told last, for somebody who has heard nothing yet."""
        told = [bucket for one in self._buckets for bucket in one.told(one.sums)]
        return PromisesFrame(self._wall(now), BUCKET_S, told)

    def _take_new(self) -> None:
        num_new = self._timelines.num_ended - self._num_ended
        self._num_ended += num_new
        for timeline in self._timelines.last_ended(num_new):
            ended = timeline.ended
            if ended is not None and ended.outcome is not Outcome.CANCELLED:
                self._bucket(timeline.arrived_at + ended.at_s).take(timeline)

    def _bucket(self, ended_at: float) -> _Bucket:
        """Ends come in order; where clocks differ by a moment, a later bucket takes an earlier end."""
        at = self._wall(ended_at) // BUCKET_S * BUCKET_S
        if not self._buckets or at > self._buckets[-1].at:
            self._buckets.append(_Bucket(at))
        return self._buckets[-1]
