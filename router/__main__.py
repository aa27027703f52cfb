"""``python -m router --topology FILE --id ID``: one gateway process."""

import asyncio
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from random import Random

import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from engines.models.store import prepared_dir
from mesh.garbage import spare_what_is_loaded
from mesh.messages import GatewayMessage, RequestSpec
from mesh.process import ProcessShell, run_process
from mesh.sockets import Sockets
from mesh.topology.schema import GatewaySpec, Topology
from router.api.app import ApiConfig, create_app
from router.api.callers import Callers, OpenCallers, Peers
from router.api.fault_metrics import EngineHealth, WireHealth
from router.api.keyed import KeyedCallers
from router.api.keyring import Keyring
from router.api.metrics import LengthCalibration, RecordingCounter
from router.api.models import Models, ServedModel
from router.api.placement_metrics import PlacementHealth
from router.api.server import HttpServer, connections_of, listen, url_of
from router.ledger import Ledger
from router.policies.in_force import PolicyInForce
from router.recorder import Recorder, RecordingFile
from router.records import RECORDING_FORMAT, Header, Record
from router.router import Router
from router.tallies import Tallies

STOP_S = 5.0  # for answers that are still being sent when all requests have ended

log = structlog.get_logger()


async def serve(shell: ProcessShell) -> None:
    """Until asked to drain; then until all requests have ended."""
    spec = shell.topology.gateway(shell.me.process)
    policy = PolicyInForce(shell.topology.policy, Random(spec.id), shell.clock.now())
    listener = listen(spec)
    models = Models(ServedModel.load(service, prepared_dir(service.model)) for service in shell.topology.services)
    sockets: Sockets[GatewayMessage] = shell.sockets(GatewayMessage)
    registry = CollectorRegistry()
    tallies = Tallies()
    with _ledger(shell, spec, registry, tallies) as ledger:
        router = Router(shell.topology, spec.id, sockets, shell.clock, policy, ledger, tallies)
        registry.register(LengthCalibration(router.lengths.calibration))
        registry.register(EngineHealth(router.statuses, router.breakers, shell.clock))
        registry.register(WireHealth(sockets.counters))
        registry.register(PlacementHealth(router.marks, shell.clock))
        peers, keyring = Peers(spec.trusted_proxies), _keyring(shell.topology)
        callers = _callers(shell, router, peers, keyring)
        server = HttpServer(
            _app(shell, spec, router, models, registry, callers), listener, STOP_S, connections_of(spec), peers
        )
        spare_what_is_loaded()
        try:
            await _run(shell, router, server, keyring, url_of(spec, listener))
        finally:
            await sockets.close()


@contextmanager
def _ledger(shell: ProcessShell, spec: GatewaySpec, registry: CollectorRegistry, tallies: Tallies) -> Iterator[Ledger]:
    """Told to the tallies, and kept in the gateway's recording, if it is to have one."""
    if spec.recording is None:
        yield Ledger(lambda record, _: tallies.ended(record), on_arrival=tallies.arrived)
        return
    header = Header(RECORDING_FORMAT, shell.topology.name, spec.id, datetime.now(UTC))
    origin_s = shell.clock.now()
    recorder = Recorder(RecordingFile(spec.recording, header), secrets.token_bytes(16))
    registry.register(RecordingCounter(lambda: recorder.num_dropped))
    log.info("recording", path=str(spec.recording))

    def tell(record: Record, request: RequestSpec) -> None:
        tallies.ended(record)
        recorder.take(record, request)

    with closing(recorder):
        yield Ledger(tell, origin_s, tallies.arrived)


def _app(
    shell: ProcessShell,
    spec: GatewaySpec,
    router: Router,
    models: Models,
    registry: CollectorRegistry,
    callers: Callers,
) -> ASGIApp:
    return create_app(
        ApiConfig(
            gateway=spec.id,
            frontdoor=router,
            models=models,
            view=router.view,
            decisions=router.decisions,
            clock=shell.clock,
            wall_clock=time.time,
            max_body_bytes=spec.max_body_bytes,
            callers=callers,
            registry=registry,
        )
    )


def _keyring(topology: Topology) -> Keyring | None:
    """None: everybody may ask."""
    access = topology.access
    return None if access is None or access.keys is None else Keyring(access.keys, access.defaults)


def _callers(shell: ProcessShell, router: Router, peers: Peers, keyring: Keyring | None) -> Callers:
    if keyring is None:
        return OpenCallers(peers)
    return KeyedCallers(peers, keyring, lambda: len(router.view().peers.gateways), shell.clock, time.time)


async def _run(shell: ProcessShell, router: Router, server: HttpServer, keyring: Keyring | None, url: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        routing = tasks.create_task(router.run())
        serving = tasks.create_task(server.run())
        reading = None if keyring is None else tasks.create_task(keyring.run())
        router.open(url)
        log.info("serving", url=url)
        await shell.drain.wait()
        await router.drain()
        server.stop()
        await serving
        routing.cancel()
        if reading is not None:
            reading.cancel()


def _gateways(topology: Topology) -> list[str]:
    return [gateway.id for gateway in topology.gateways]


if __name__ == "__main__":
    sys.exit(run_process("router", _gateways, serve))
