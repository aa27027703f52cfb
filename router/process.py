"""The gateway process: what a gateway is made of, and its life."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from random import Random

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from engines.models.store import prepared_dir
from mesh.addresses import other_seat, owner_of
from mesh.metrics.processes import WireHealth
from mesh.process.garbage import spare_what_is_loaded
from mesh.process.process import ProcessShell
from mesh.sockets.listeners import Inheritance, handover_file, offer
from mesh.sockets.sockets import Sockets
from mesh.topology.checks.access import is_loopback
from mesh.topology.schema import GatewaySpec, ServiceSpec, Topology
from mesh.wire.hosts import HostPlace
from mesh.wire.messages import GatewayMessage
from mesh.wire.requests import RequestSpec
from router.adapters.models import models_of_adapters
from router.adapters.orders import AdapterOrders
from router.adapters.serving import serve_adapters
from router.api.access.batches import KeyedBatchCallers, open_batch_callers
from router.api.access.keyed import KeyedCallers
from router.api.access.keyring import Keyring
from router.api.adapters import AdapterScope
from router.api.app import ApiConfig, Apps, create_apps
from router.api.costs import costs_of
from router.api.forward.models import ForwardedModel
from router.api.http.browsers import BrowserRules
from router.api.http.callers import Callers, ClientPeers, OpenCallers
from router.api.http.connections import Connections
from router.api.http.server import HttpServer, Listeners, certificate_of, connections_of, url_of
from router.api.metrics.faults import BreakerHealth, ConnectionHealth
from router.api.metrics.gateway import GatewayMetrics, LengthCalibration, Promises, RecordingCounter
from router.api.metrics.keys import KeyUse
from router.api.metrics.mesh import MeshHealth
from router.api.metrics.placement import PlacementHealth
from router.api.openai.models import Models, ServedModel
from router.api.openai.pooled.model import PooledModel
from router.api.orders import OrderScope
from router.api.responses.stored import StoredResponses
from router.api.targets import Target, targets_of
from router.batches.parts import BatchParts
from router.checks import may_act, shows_page
from router.feed.broadcast import FeedBroadcast
from router.feed.feed import FeedSources
from router.gateway import Router
from router.history.recorder import Recorder, RecordingFile
from router.history.records import RECORDING_FORMAT, Header, Outcome
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timeline import RequestTimeline
from router.history.timelines import TimelineReaders, Timelines
from router.images.sources import ImageLimits
from router.policies.in_force import PolicyInForce
from router.traces.tracer import Tracer
from router.ui.what_if import played_topology
from router.ui.what_if_run import Simulations

ADMIN_CONNECTIONS = 256
STOP_S = 5.0  # for answers that are still being sent when all requests have ended
LINGER_S = 15.0  # that clients may still use connections to a gateway which has a successor
LEAVE_S = 3600.0  # that its last answers may take

log = structlog.get_logger()


async def serve(shell: ProcessShell) -> None:
    """Serve until asked to drain, then until all requests have ended."""
    spec = shell.topology.gateway(owner_of(shell.me.process))
    policy = PolicyInForce(shell.topology.policy, Random(spec.id), shell.clock.now())
    inherited = Inheritance.take(handover_file(shell.runtime, other_seat(shell.me.process)))
    listeners = Listeners.of(spec, {} if inherited is None else inherited.listeners)
    certificate = certificate_of(spec)
    bases = _own_models(shell.topology)
    models = _models(shell.topology, bases)
    sockets: Sockets[GatewayMessage] = shell.sockets(GatewayMessage)
    registry = CollectorRegistry()
    promises = {service.name: service.slo for service in shell.topology.offered}
    tallies, metrics = Tallies(), GatewayMetrics(registry, promises)
    keyring = _keyring(shell.topology)
    with (
        _tracer(shell, spec, registry) as tracer,
        _timelines(shell, spec, registry, tallies, metrics, tracer, keyring) as timelines,
    ):
        timelines.apart_tokens = models.apart_tokens
        router = Router(shell.topology, shell.me.process, sockets, shell.clock, policy, timelines, tallies)
        orders = serve_adapters(shell.topology, router, models, bases, sockets.answer)
        registry.register(LengthCalibration(router.lengths.calibration))
        registry.register(Promises(promises))
        registry.register(MeshHealth(shell.topology, router.readers))
        registry.register(BreakerHealth(router.breakers, shell.clock))
        registry.register(WireHealth(sockets.counters))
        ProcessCollector(registry=registry)
        registry.register(PlacementHealth(router.marks, shell.clock))
        peers = ClientPeers(spec.trusted_proxies)
        if keyring is not None:
            registry.register(KeyUse(keyring.__iter__))
        callers = _callers(shell, router, peers, keyring)
        broadcast, simulations = _broadcast(shell, router), Simulations()
        batches = _batches(shell, router, keyring)
        responses = StoredResponses.of(shell.topology.responses, shell.topology.name)
        given = callers, sockets.place, tracer, broadcast, simulations, batches, responses, orders
        apps = _apps(shell, spec, router, models, registry, metrics, *given)
        connections = connections_of(spec)
        registry.register(ConnectionHealth(connections.__len__, connections.refused))
        server = HttpServer(apps.public, listeners.public, STOP_S, connections, peers, certificate)
        few = Connections(ADMIN_CONNECTIONS, ADMIN_CONNECTIONS)
        admin = HttpServer(apps.admin, listeners.admin, STOP_S, few, ClientPeers())
        spare_what_is_loaded()
        try:
            url = url_of(spec.address, listeners.public, spec.scheme)
            admin_url = url_of(spec.admin_address, listeners.admin)
            gateway = Gateway(
                shell, router, (server, admin), keyring, listeners, broadcast, simulations, batches, orders
            )
            await gateway.run((url, admin_url), inherited)
        finally:
            responses.close()
            await sockets.close()


def _own_models(topology: Topology) -> dict[str, ServedModel | PooledModel]:
    """What engines of the mesh hold, by service."""
    return {service.name: _model(service, topology) for service in topology.services if service.model}


def _models(topology: Topology, bases: Mapping[str, ServedModel | PooledModel]) -> Models:
    return Models(
        (*bases.values(), *models_of_adapters(topology, bases)),
        (ForwardedModel.of(service) for service in topology.services if not service.model),
    )


def _model(service: ServiceSpec, topology: Topology) -> ServedModel | PooledModel:
    folder = prepared_dir(service.model)
    if service.pools:
        import_module("router.api.openai.pooled.answers")  # brings numpy, before any request waits for it
        return PooledModel.load(service, folder)
    backends = {engine.backend for engine in topology.own_engines if service.name in engine.services}
    return ServedModel.load(service, folder, backends)


@contextmanager
def _tracer(shell: ProcessShell, spec: GatewaySpec, registry: CollectorRegistry) -> Iterator[Tracer | None]:
    """None without ``[traces]``: then nothing of OpenTelemetry is imported."""
    if shell.topology.traces is None:
        yield None
        return
    from router.traces.tracing import tracing

    resource = {"service.namespace": shell.topology.name, "service.instance.id": spec.id}
    with tracing(shell.topology.traces, resource, registry, shell.clock) as tracer:
        yield tracer


@contextmanager
def _timelines(
    shell: ProcessShell,
    spec: GatewaySpec,
    registry: CollectorRegistry,
    tallies: Tallies,
    metrics: GatewayMetrics,
    tracer: Tracer | None,
    keyring: Keyring | None,
) -> Iterator[Timelines]:
    """Timelines that are read by the tallies, the metrics, and the gateway's recording and tracer, if it has them."""
    if spec.recording is None:
        yield Timelines(_readers(tallies, metrics, None, 0.0, tracer, keyring))
        return
    header = Header(RECORDING_FORMAT, shell.topology.name, spec.id, datetime.now(UTC))
    origin_s = shell.clock.now()
    recorder = Recorder(RecordingFile(spec.recording, header), secrets.token_bytes(16))
    registry.register(RecordingCounter(lambda: recorder.num_dropped))
    log.info("recording", path=str(spec.recording))
    with closing(recorder):
        yield Timelines(_readers(tallies, metrics, recorder, origin_s, tracer, keyring))


def _readers(
    tallies: Tallies,
    metrics: GatewayMetrics,
    recorder: Recorder | None,
    origin_s: float,
    tracer: Tracer | None,
    keyring: Keyring | None,
) -> TimelineReaders:
    """Arrivals in a recording count from ``origin_s``."""

    def ended(timeline: RequestTimeline, request: RequestSpec) -> None:
        record = record_of(timeline, origin_s)
        tallies.ended(record, request.service)
        metrics.ended(record, timeline.reason, timeline.trace_id)
        if keyring is not None and record.outcome is not Outcome.CANCELLED and not record.is_filler:
            held = keyring.named(timeline.facts.tenant)
            if held is not None:
                held.meter.judge(is_kept=record.meets_slo)
        if recorder is not None:
            recorder.take(record, request)

    traced = () if tracer is None else (tracer.ended,)
    return TimelineReaders((tallies.arrived,), (metrics.delivered,), (ended, *traced))


def _apps(
    shell: ProcessShell,
    spec: GatewaySpec,
    router: Router,
    models: Models,
    registry: CollectorRegistry,
    metrics: GatewayMetrics,
    callers: Callers,
    place: Callable[[str], HostPlace | None],
    tracer: Tracer | None,
    broadcast: FeedBroadcast,
    simulations: Simulations,
    batches: BatchParts,
    responses: StoredResponses,
    adapters: AdapterOrders,
) -> Apps:
    def targets() -> list[Target]:
        return list(targets_of(shell.topology, router.admin_urls(), router.statuses(), address_of))

    def address_of(host: str) -> str:
        found = place(host)
        return shell.topology.host(host).address if found is None else found.address

    acts = may_act(shell.topology, spec)
    return create_apps(
        ApiConfig(
            gateway=shell.me.process,
            router=router,
            models=models,
            view=router.view,
            timelines=router.timelines,
            metrics=metrics,
            clock=shell.clock,
            wall_clock=time.time,
            max_body_bytes=spec.max_body_bytes,
            images=ImageLimits.of(spec),
            callers=callers,
            operators=OpenCallers(ClientPeers()) if is_loopback(spec.admin_address) else callers,
            rules=BrowserRules.of(spec.address, spec.allowed_hosts, spec.cors_origins),
            operator_rules=BrowserRules.of(spec.admin_address, spec.allowed_hosts, ()),
            registry=registry,
            calls=router.calls,
            tokenize=router.tokenize,
            targets=targets,
            costs=lambda: list(costs_of(shell.topology, router.statuses())),
            tracer=tracer,
            broadcast=broadcast,
            has_page=shows_page(spec),
            has_chat=acts,
            orders=_orders(shell.topology, router) if acts else None,
            adapters=_adapters(shell.topology, adapters, acts=acts),
            played=played_topology(shell.topology) if acts else None,
            simulations=simulations,
            batches=batches,
            responses=responses,
        )
    )


def _batches(shell: ProcessShell, router: Router, keyring: Keyring | None) -> BatchParts:
    callers = open_batch_callers if keyring is None else KeyedBatchCallers(keyring, time.time)
    return BatchParts.of(shell.topology, shell.me.process, callers, lambda: router.num_filling, time.time)


def _orders(topology: Topology, router: Router) -> OrderScope:
    engines = tuple(engine.id for engine in topology.engines)
    return OrderScope(router, engines, tuple(service.name for service in topology.services))


def _adapters(topology: Topology, orders: AdapterOrders, *, acts: bool) -> AdapterScope | None:
    """None: the deployment adds none. Clients' address takes such orders where operators have keys."""
    has_keys = topology.access is not None and topology.access.keys is not None
    return AdapterScope(orders, on_public=has_keys, on_admin=acts) if topology.added is not None else None


def _broadcast(shell: ProcessShell, router: Router) -> FeedBroadcast:
    ahead_s = time.time() - shell.clock.now()
    sources = FeedSources(
        shell.topology,
        owner_of(shell.me.process),
        router.timelines,
        router.report,
        lambda: router.marks.heard,
        lambda at: at + ahead_s,
    )
    return FeedBroadcast(sources, shell.clock)


def _keyring(topology: Topology) -> Keyring | None:
    """Make the keyring; None: everybody may ask."""
    access = topology.access
    if access is None or access.keys is None:
        return None
    return Keyring(access.keys, access.defaults, share_prefixes=access.share_prefixes)


def _callers(shell: ProcessShell, router: Router, peers: ClientPeers, keyring: Keyring | None) -> Callers:
    if keyring is None:
        return OpenCallers(peers)
    return KeyedCallers(peers, keyring, lambda: len(router.view().peers.gateways), shell.clock, time.time)


class Gateway:
    """A gateway's life: it serves until it is asked to drain, or a successor serves in its place."""

    def __init__(
        self,
        shell: ProcessShell,
        router: Router,
        servers: tuple[HttpServer, HttpServer],
        keyring: Keyring | None,
        listeners: Listeners,
        broadcast: FeedBroadcast,
        simulations: Simulations,
        batches: BatchParts,
        orders: AdapterOrders,
    ) -> None:
        """Make a gateway of its parts. ``servers``: for clients, for operators."""
        self._shell = shell
        self._router = router
        self._server, self._admin = servers
        self._keyring = keyring
        self._listeners = listeners
        self._broadcast = broadcast
        self._simulations = simulations
        self._batches = batches
        self._orders = orders

    async def run(self, urls: tuple[str, str], inherited: Inheritance | None) -> None:
        """Run all servers. ``urls``: for clients, for operators."""
        async with asyncio.TaskGroup() as tasks:
            runs = self._router.run(), self._broadcast.run(), self._orders.run()
            background = [tasks.create_task(run) for run in runs]
            if self._keyring is not None:
                background.append(tasks.create_task(self._keyring.run()))
            if inherited is not None:  # the predecessor serves until this one has heard of all engines
                await asyncio.sleep(2 * self._shell.topology.timing.heartbeat_s)
            serving, operating = tasks.create_task(self._server.run()), tasks.create_task(self._admin.run())
            await self._server.started()
            self._router.open(*urls)
            running = tasks.create_task(self._batches.runner.run())
            log.info("serving", url=urls[0], admin_url=urls[1])
            if inherited is not None:
                inherited.serving()
            await self._until_over()
            self._batches.runner.stop()
            await running
            await self._router.drain()
            self._server.stop()
            await serving
            self._broadcast.end()
            self._simulations.end()
            self._admin.stop()
            await operating
            self._batches.stored.close()
            for task in background:
                task.cancel()

    async def _until_over(self) -> None:
        """Asked to drain, or succeeded, and all connections have ended."""
        leaving = asyncio.ensure_future(self._leave_to_successor())
        asked = asyncio.ensure_future(self._shell.drain.wait())
        try:
            await asyncio.wait({leaving, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, asked):
                task.cancel()

    async def _leave_to_successor(self) -> None:
        await self._until_succeeded()
        log.info("a successor serves")
        self._batches.runner.stop()
        self._router.leave()
        self._admin.stop_accepting()
        self._broadcast.end()
        self._simulations.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._server.leave(LINGER_S)

    async def _until_succeeded(self) -> None:
        try:
            await offer(handover_file(self._shell.runtime, self._shell.me.process), self._listeners.by_name)
        except OSError as error:
            log.warning("no successor can come", reason=str(error))
            await asyncio.Event().wait()
