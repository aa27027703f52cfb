"""Refused connections as metrics."""

from prometheus_client import CollectorRegistry

from router.api.http.connections import Connection, Connections
from router.api.metrics.faults import ConnectionHealth


def test_open_and_refused_connections_are_counted_by_reason():
    connections, registry = Connections(2, 1), CollectorRegistry()
    registry.register(ConnectionHealth(connections.__len__, connections.refused))
    connections.add(Connection("a", 0.0))
    connections.add(Connection("a", 0.0))
    assert registry.get_sample_value("meshserve_connections") == 1.0
    assert registry.get_sample_value("meshserve_connections_refused_total", {"reason": "too many of one client"}) == 1.0
