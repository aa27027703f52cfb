"""Breakers as Prometheus reads them."""

from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from router.api.metrics.faults import BreakerHealth
from router.requests.breakers import Breakers
from tests.router.cluster import D0, P0


def test_states_and_failures_of_breakers_are_exported():
    breakers, clock = Breakers(), SimpleNamespace(now=lambda: 9.5)
    for at in (6.0, 7.0, 8.0, 9.0):
        breakers.failed(None, [D0], at)
    breakers.succeeded("r", P0, 9.0)
    registry = CollectorRegistry()
    registry.register(BreakerHealth(breakers.known, clock))

    def value(name, engine, **labels):
        return registry.get_sample_value(name, {"engine": engine, **labels})

    assert value("meshserve_breaker_state", D0, state="open") == 1
    assert value("meshserve_breaker_state", P0, state="closed") == 1
    assert value("meshserve_breaker_openings_total", D0) == 1
    assert value("meshserve_engine_failures_total", D0) == 4
    clock.now = lambda: 10.5
    assert value("meshserve_breaker_state", D0, state="half-open") == 1
