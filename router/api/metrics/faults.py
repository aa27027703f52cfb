"""Offers Prometheus engines' health, the mesh's messages, and clients that were refused."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesh.clock import Clock
from mesh.wire.control import ProcessState
from mesh.wire.status import EngineStatus
from router.requests.breakers import Breaker, BreakerState

Families = Iterable[GaugeMetricFamily | CounterMetricFamily]


class EngineHealth(Collector):
    """What the engines say of themselves, and what this gateway has seen of them."""

    def __init__(
        self,
        statuses: Callable[[], Mapping[str, EngineStatus]],
        breakers: Callable[[], Mapping[str, Breaker]],
        clock: Clock,
    ) -> None:
        self._statuses = statuses
        self._breakers = breakers
        self._clock = clock

    def collect(self) -> Families:
        return (*self._of_statuses(), *self._of_breakers())

    def _of_statuses(self) -> Families:
        state = GaugeMetricFamily("meshserve_engine_state", "1: the engine is in it", labels=("engine", "state"))
        running = GaugeMetricFamily("meshserve_migrations_running", "Requests that are leaving", labels=("engine",))
        total = CounterMetricFamily("meshserve_migrations", "Requests that left while they ran", labels=("engine",))
        aborted = CounterMetricFamily(
            "meshserve_migrations_aborted", "Requests that were to leave and did not", labels=("engine",)
        )
        preempted = CounterMetricFamily(
            "meshserve_preemptions", "Requests that lost their KV to others", labels=("engine",)
        )
        offloaded = GaugeMetricFamily("meshserve_offloaded", "Requests whose KV is in host memory", labels=("engine",))
        slices = CounterMetricFamily(
            "meshserve_slices", "Slices that ended, and what became of the request", labels=("engine", "fate")
        )
        for engine, status in self._statuses().items():
            preempted.add_metric((engine,), status.preemptions_total)
            offloaded.add_metric((engine,), status.num_offloaded)
            for fate in ("kept", "moved", "offloaded"):
                slices.add_metric((engine, fate), getattr(status, f"slices_{fate}_total"))
            running.add_metric((engine,), status.num_migrating_out)
            total.add_metric((engine,), status.migrations_total)
            aborted.add_metric((engine,), status.migrations_aborted_total)
            for one in ProcessState:
                state.add_metric((engine, one), status.state is one)
        return state, running, total, aborted, preempted, offloaded, slices

    def _of_breakers(self) -> Families:
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


class WireHealth(Collector):
    """What this gateway could not send or read on the mesh's sockets."""

    def __init__(self, counters: Mapping[str, int]) -> None:
        self._counters = counters

    def collect(self) -> Families:
        total = CounterMetricFamily(
            "meshserve_wire_faults", "Messages of the mesh that were dropped", labels=("fault",)
        )
        for fault, count in sorted(self._counters.items()):
            total.add_metric((fault,), count)
        return (total,)


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
