"""The route of metrics."""

import threading

from fastapi import Request
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from router.api import operations
from router.api.operations import MetricRoutes


class Asked(Collector):
    """Knows the threads that read its numbers."""

    def __init__(self) -> None:
        self.threads = []

    def collect(self):
        self.threads.append(threading.get_ident())
        return [CounterMetricFamily("asked", "How often", len(self.threads))]


async def test_numbers_are_read_in_the_event_loop_and_written_out_beside_it(monkeypatch):
    writers, written, registry = [], operations.written, CollectorRegistry(auto_describe=False)

    def watched(metrics, accept):
        writers.append(threading.get_ident())
        return written(metrics, accept)

    monkeypatch.setattr(operations, "written", watched)
    registry.register(asked := Asked())
    asked.threads.clear()
    answer = await MetricRoutes(registry).metrics(Request({"type": "http", "headers": []}))
    assert b"asked_total 1.0" in answer.body
    assert asked.threads == [threading.get_ident()]
    assert writers != asked.threads
