"""An engine's `/metrics`: the address of its table, what it tells, and who may read it."""

import socket
from collections.abc import Mapping
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from engines.metrics.engine import EngineNumbers
from engines.metrics.steps import StepMetrics
from mesh.access.operators import OperatorKeys
from mesh.addresses import reached_at
from mesh.directory import place_of
from mesh.metrics.listener import PATH, MayRead, MetricsListener, listen
from mesh.metrics.processes import WireHealth
from mesh.process.process import ProcessShell
from mesh.topology.checks.access import is_loopback
from mesh.topology.schema import EngineSpec
from mesh.wire.status import EngineStatus

log = structlog.get_logger()


class EngineMetrics:
    """What an engine tells Prometheus. ``url`` is empty where it cannot listen: the engine serves all the same."""

    def __init__(self, shell: ProcessShell, engine: EngineSpec, wire_faults: Mapping[str, int]) -> None:
        self._listener = _listen(engine)
        self._may_read = _may_read(shell, engine)
        self.url: Final = "" if self._listener is None else _url(shell, engine, self._listener)
        self.status: EngineStatus | None = None  # the last one that was published
        self._registry = CollectorRegistry()
        self.steps: Final = StepMetrics(engine.id, self._registry)
        self._registry.register(EngineNumbers(engine.id, lambda: self.status))
        self._registry.register(WireHealth(wire_faults))
        ProcessCollector(registry=self._registry)

    def __repr__(self) -> str:
        return f"<EngineMetrics at {self.url or 'no address'}>"

    async def run(self) -> None:
        """Answer scrapes. Return at once where the engine cannot listen; else never, cancel it."""
        if self._listener is not None:
            await MetricsListener(self._listener, self._registry.collect, self._may_read).run()


def _listen(engine: EngineSpec) -> socket.socket | None:
    address = "0.0.0.0" if engine.metrics_address == "*" else engine.metrics_address
    try:
        return listen(address, engine.metrics_port or 0)
    except OSError as error:
        log.error("tells no metrics", address=address, port=engine.metrics_port, reason=error.strerror)
        return None


def _url(shell: ProcessShell, engine: EngineSpec, listener: socket.socket) -> str:
    """Where Prometheus reaches it. A listener of all addresses is reached where its host is."""
    places = shell.ties.read_places() or [place_of(host) for host in shell.topology.hosts if host.address]
    address = next((place.address for place in places if place.name == engine.host), "")
    host, port = reached_at(engine.metrics_address, address), listener.getsockname()[1]
    return f"http://{host}:{port}{PATH}"


def _may_read(shell: ProcessShell, engine: EngineSpec) -> MayRead | None:
    """Beyond loopback, whoever reads shows the key of an operator, if the mesh has keys."""
    access = shell.topology.access
    if access is None or access.keys is None or is_loopback(engine.metrics_address):
        return None
    return OperatorKeys(access.keys).admit
