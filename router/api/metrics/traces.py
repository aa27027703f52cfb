"""Offers Prometheus what became of the traces of a gateway's requests."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class TraceHealth(Collector):
    """How many spans the collector took, and how many traces were dropped."""

    def __init__(self, num_exported: Callable[[], int], num_dropped: Callable[[], Mapping[str, int]]) -> None:
        self._num_exported = num_exported
        self._num_dropped = num_dropped

    def collect(self) -> Iterable[CounterMetricFamily]:
        exported = CounterMetricFamily(
            "meshserve_spans_exported", "Spans that the collector of traces took", self._num_exported()
        )
        dropped = CounterMetricFamily(
            "meshserve_traces_dropped",
            "Traces that were to be exported and were not: too many waited, or the collector was away or refused them",
            labels=("reason",),
        )
        for reason, count in self._num_dropped().items():
            dropped.add_metric((reason,), count)
        return exported, dropped
