"""Offers Prometheus how a gateway fares with engines, and the clients that it refused."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesh.clock import Clock
from router.requests.breakers import Breaker, BreakerState

Families = Iterable[GaugeMetricFamily | CounterMetricFamily]


class BreakerHealth(Collector):
    """How this gateway fared with the engines."""

    def __init__(self, breakers: Callable[[], Mapping[str, Breaker]], clock: Clock) -> None:
        self._breakers = breakers
        self._clock = clock

    def collect(self) -> Families:
        state = GaugeMetricFamily(
            "meshserve_breaker_state", "1: the engine's circuit breaker is in it", labels=("engine", "state")
        )
        openings = CounterMetricFamily("meshserve_breaker_openings", "Times that it opened", labels=("engine",))
        failures = CounterMetricFamily(
            "meshserve_engine_failures", "Deaths, silences, failed steps, streams and hand-overs", labels=("engine",)
        )
        now = self._clock.now()
        for engine, breaker in self._breakers().items():
            openings.add_metric((engine,), breaker.num_openings)
            failures.add_metric((engine,), breaker.num_failures)
            for one in BreakerState:
                state.add_metric((engine, one), breaker.state(now) is one)
        return state, openings, failures


class ConnectionHealth(Collector):
    """Connections and heads of requests that this gateway's HTTP layer refused before they were requests."""

    def __init__(self, num_open: Callable[[], int], refused: Mapping[str, int]) -> None:
        """Count connections. ``refused``: how many, by reason."""
        self._num_open = num_open
        self._refused = refused

    def collect(self) -> Families:
        current = GaugeMetricFamily("meshserve_connections", "Connections of clients", self._num_open())
        refused = CounterMetricFamily(
            "meshserve_connections_refused",
            "Connections that were closed or answered with an error",
            labels=("reason",),
        )
        for reason, count in sorted(self._refused.items()):
            refused.add_metric((reason,), count)
        return current, refused
