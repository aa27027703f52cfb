"""Counters and histograms in plain numbers, made into metrics when Prometheus asks for them.

The library's own take a lock or two for each number and search their buckets one by one. These are for one thread.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Count:
    """One number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Buckets:
    """How often which values were seen: by bucket, the last one for what is above all bounds; and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


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
    """Counts like the library's histogram. ``bounds``: the upper ends of its buckets, without infinity."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, labels, tuple(bounds)
        self._bucket_names = [*map(floatToGoString, self._bounds), "+Inf"]
        self._of: dict[tuple[str, ...], Buckets] = {}
        registry.register(self)

    def labels(self, *values: str) -> Buckets:
        if (found := self._of.get(values)) is None:
            found = self._of[values] = Buckets(self._bounds)
        return found

    def describe(self) -> Iterable[Metric]:
        return [HistogramMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, one in self._of.items():
            buckets = list(zip(self._bucket_names, map(float, accumulate(one.counts)), strict=True))
            family.add_metric(values, buckets, one.total)
        return [family]
