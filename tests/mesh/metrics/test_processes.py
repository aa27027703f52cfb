"""Messages that a process dropped."""

from collections import Counter

from prometheus_client import CollectorRegistry

from mesh.metrics.processes import WireHealth


def test_dropped_messages_are_counted_by_what_was_wrong():
    counters, registry = Counter(), CollectorRegistry()
    registry.register(WireHealth(counters))
    counters["received_malformed"] += 3
    assert registry.get_sample_value("meshserve_wire_faults_total", {"fault": "received_malformed"}) == 3.0
