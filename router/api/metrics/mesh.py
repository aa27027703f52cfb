"""Offers Prometheus what a gateway knows of the mesh: processes, engines that are ready or short, its own queue."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesh.topology.schema import Topology
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import ChildStatus, EngineStatus, Wanted

Families = Iterable[GaugeMetricFamily | CounterMetricFamily]
STATES = "starting", "running", "restarting", "leaving", "standby", "stopped"  # of a process, to its supervisor
NOT_TO_RUN = frozenset({"standby", "stopped", "leaving"})
MISSING = "missing"


@dataclass(frozen=True, slots=True)
class MeshReaders:
    """What is read when Prometheus asks: the last statuses of engines, those that supervisors watch, engines that are
    wanted by those that wait, and how many requests of each service are in flight, and wait.
    """

    statuses: Callable[[], Mapping[str, EngineStatus]]
    children: Callable[[], Mapping[str, ChildStatus]]
    wanted: Callable[[], Sequence[Wanted]]
    num_in_flight: Callable[[], Mapping[str, int]]
    num_waiting: Callable[[], Mapping[str, int]]


class MeshHealth(Collector):
    """Each gateway tells what it sees: take the largest number of all gateways, and the sum of queues and shortages."""

    def __init__(self, topology: Topology, readers: MeshReaders) -> None:
        self._services = [service.name for service in topology.services]
        self._engines = {engine.id: engine.is_standby for engine in topology.engines}
        self._readers = readers

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        statuses, children = self._readers.statuses(), self._readers.children()
        yield self._of_states(statuses, children)
        yield from _of_children(children)
        yield from self._of_needs(statuses)
        yield from self._of_requests()

    def _of_states(
        self, statuses: Mapping[str, EngineStatus], children: Mapping[str, ChildStatus]
    ) -> GaugeMetricFamily:
        state = GaugeMetricFamily(
            "meshserve_engine_state",
            "1: the engine is in it. Missing: it should run, and this gateway does not hear it",
            labels=("engine", "state"),
        )
        for engine, is_standby in self._engines.items():
            if (status := statuses.get(engine)) is not None:
                found = str(status.state)
            else:
                child = children.get(engine)
                rests = is_standby if child is None else child.state in NOT_TO_RUN
                found = "" if rests else MISSING
            for one in (*ProcessState, MISSING):
                state.add_metric((engine, one), found == one)
        return state

    def _of_needs(self, statuses: Mapping[str, EngineStatus]) -> Families:
        """Zeros are told, too: autoscalers need a number."""
        labels = "model_name", "role"
        ready = GaugeMetricFamily("meshserve_engines_ready", "Engines that take requests of it", labels=labels)
        short = GaugeMetricFamily(
            "meshserve_engines_short", "Engines more that the requests which wait here would fill", labels=labels
        )
        found = Counter(
            (service.name, status.role)
            for status in statuses.values()
            if status.state is ProcessState.READY
            for service in status.services
            if not service.is_leaving
        )
        missing = {(one.service, one.role): one.num_engines for one in self._readers.wanted()}
        for key in [(service, role) for service in self._services for role in Role]:
            ready.add_metric(key, found[key])
            short.add_metric(key, missing.get(key, 0))
        return ready, short

    def _of_requests(self) -> Families:
        waiting = GaugeMetricFamily(
            "meshserve_requests_waiting", "Requests in this gateway that have no engine", labels=("model_name",)
        )
        in_flight = GaugeMetricFamily(
            "meshserve_requests_in_flight", "Requests that this gateway answers now", labels=("model_name",)
        )
        num_waiting, num_in_flight = self._readers.num_waiting(), self._readers.num_in_flight()
        for service in self._services:
            waiting.add_metric((service,), num_waiting.get(service, 0))
            in_flight.add_metric((service,), num_in_flight.get(service, 0))
        return waiting, in_flight


def _of_children(children: Mapping[str, ChildStatus]) -> Families:
    state = GaugeMetricFamily(
        "meshserve_process_state", "1: its supervisor sees the process in it", labels=("process", "state")
    )
    restarts = CounterMetricFamily(
        "meshserve_process_restarts", "Times that its supervisor started it again", labels=("process",)
    )
    for name, child in children.items():
        restarts.add_metric((name,), child.num_restarts)
        for one in STATES:
            state.add_metric((name, one), child.state == one)
    return state, restarts
