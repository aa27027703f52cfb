"""Counters and histograms in plain numbers, made into metrics when Prometheus asks for them.

The library's own take a lock or two for each number and search their buckets one by one. These are for one thread.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString


class Count:
    """One number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Buckets:
    """How often which values were seen: by bucket, the last one for what is above all bounds; and their sum."""

    __slots__ = ("_bounds", "_exemplars", "_names", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._names = [*map(floatToGoString, bounds), "+Inf"]
        self._exemplars: list[Exemplar | None] = []  # the last one of each bucket, once there is any
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, trace: str | None = None) -> None:
        """Count a value. ``trace``: the id of its request's trace; OpenMetrics shows the last one of each bucket."""
        bucket = bisect_left(self._bounds, value)
        self.counts[bucket] += 1
        self.total += value
        if trace is not None:
            if not self._exemplars:
                self._exemplars = [None] * len(self.counts)
            self._exemplars[bucket] = Exemplar({"trace_id": trace}, value, time.time())

    def told(self) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
        """Return the buckets, cumulated, in the form that the library takes."""
        sums = zip(self._names, map(float, accumulate(self.counts)), strict=True)
        if not self._exemplars:
            return list(sums)
        told = zip(sums, self._exemplars, strict=True)
        return [one if exemplar is None else (*one, exemplar) for one, exemplar in told]


class Counter(Collector):
    """Counts like the library's counter, without the suffix ``_total``."""

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._of: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        if (found := self._of.get(values)) is None:
            found = self._of[values] = Count()
        return found

    def describe(self) -> Iterable[Metric]:
        return [CounterMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self._of.items():
            family.add_metric(values, count.value)
        return [family]


class Histogram(Collector):
    """Counts like the library's histogram. ``bounds``: the upper ends of its buckets, without infinity, of all series;
    ``bounds_of`` adds those of a single one, by the value of its first label.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        registry: CollectorRegistry,
        bounds_of: Callable[[str], Iterable[float]] = lambda _: (),
    ) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, labels, tuple(bounds)
        self._bounds_of = bounds_of
        self._of: dict[tuple[str, ...], Buckets] = {}
        registry.register(self)

    def labels(self, *values: str) -> Buckets:
        if (found := self._of.get(values)) is None:
            bounds = sorted({*self._bounds, *self._bounds_of(values[0])})
            found = self._of[values] = Buckets(bounds)
        return found

    def describe(self) -> Iterable[Metric]:
        return [HistogramMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, one in self._of.items():
            family.add_metric(values, one.told(), one.total)
        return [family]
