"""Offers Prometheus what every process of the mesh knows of its sockets."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class WireHealth(Collector):
    """What this process could not send or read on the mesh's sockets."""

    def __init__(self, counters: Mapping[str, int]) -> None:
        self._counters = counters

    def collect(self) -> Iterable[CounterMetricFamily]:
        total = CounterMetricFamily(
            "meshserve_wire_faults", "Messages of the mesh that this process dropped", labels=("fault",)
        )
        for fault, count in sorted(self._counters.items()):
            total.add_metric((fault,), count)
        return (total,)
