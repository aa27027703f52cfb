"""The asyncio shell around a gateway's core: sockets, a clock, consumers' streams, and a `match` over effects."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from mesh.addresses import owner_of
from mesh.clock import Clock
from mesh.effects import Follow, Forget, Publish, Rest
from mesh.membership.pulse import Pulse
from mesh.report import named_in_topology, report
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import PolicySpec, Topology
from mesh.wire.adapters import AddAdapter, AddedAdapter, RemoveAdapter
from mesh.wire.control import Drain, LoadService, PolicyChoice, ProcessState, UnloadService
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, EngineAnswer, GatewayMessage
from mesh.wire.requests import RequestSpec
from mesh.wire.status import EngineStatus, GatewayStatus
from router.adapters.added import AddedAdapters
from router.api.metrics.mesh import MeshReaders
from router.effects import (
    ChangeAdapters,
    DeclinePolicy,
    Deliver,
    Fail,
    GatewayEffect,
    SendToEngine,
    SetRoute,
    TakeAdapters,
    TakePolicy,
    TellPlaces,
)
from router.gateway_core import GatewayCore, GatewayParts
from router.generation import Generation, Route, RouterError, TokenBatch
from router.history.lengths import LengthPredictor, usual_answers
from router.history.marks import MarkKeeper
from router.history.tallies import Tallies
from router.history.timelines import Timelines
from router.history.trace import RequestTrace
from router.live_generation import LiveGeneration
from router.policies.capabilities import lengths_for_engines
from router.policies.in_force import PolicyInForce
from router.requests.breakers import Breaker
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.servers.adapters import ServerAdapters
from router.servers.forwarded_call import CallBody, ForwardedCalls
from router.servers.learnt.kv_events import PrefixesChanged
from router.view.cluster_view import ClusterView
from router.view.monitor import Monitor

MAX_PENDING_BYTES = 1 << 20  # of batches that a consumer may leave untaken before the core hears of it
LEASES_SHOWN = 3  # for so long a silent placement daemon is shown as it was
MESSAGES_PER_TURN = 16  # a full inbox never waits, so consumers get their turn in between

log = structlog.get_logger()


class Router:
    """One gateway's `RequestRouter`. Submit only while `run` runs.

    ``name``: one of the two that the gateway has in the mesh. ``tallies`` read the timelines.
    """

    def __init__(
        self,
        topology: Topology,
        name: str,
        sockets: Sockets[GatewayMessage],
        clock: Clock,
        policy: PolicyInForce,
        timelines: Timelines,
        tallies: Tallies,
    ) -> None:
        spec, timing = topology.gateway(owner_of(name)), topology.timing
        limits = DispatchLimits(spec.max_requests, spec.max_waiting, timing.reply_s, timing.stall_s)
        monitor = Monitor(timing.lease_s, name, timing.status_gap_s)
        weights = {engine: server.weight for engine, server in topology.servers.items()}
        lengths, told = LengthPredictor(usual=usual_answers(topology)), lengths_for_engines(topology.rescheduling)
        dispatcher = Dispatcher(policy.policy, monitor, limits, timelines, lengths, weights, engine_lengths=told)
        parts = GatewayParts(topology, name, os.getpid(), dispatcher, monitor, policy, tallies)
        self._core = GatewayCore(parts)
        self.timelines = timelines
        self._topology = topology
        self.name = name
        self._sockets = sockets
        self._clock = clock
        self._servers = ServerAdapters(topology, self, clock, MAX_PENDING_BYTES)
        self._generations: dict[str, LiveGeneration] = {}
        self._armed_at: float | None = None
        self._rearm = asyncio.Event()
        self._rests = asyncio.Event()
        self._will_publish = False
        self.on_adapters: Callable[[Mapping[str, AddedAdapter]], None] = lambda _: None  # they changed
        self.on_adapter_order: Callable[[str, AddAdapter | RemoveAdapter], None] = lambda _, __: None  # of the mesh
        self._pulse: Pulse | None = None
        self._heartbeat_s = timing.heartbeat_s
        self._lease_s = timing.lease_s
        self._log = log.bind()  # bound anew for each line, it costs what a line does not that is dropped

    def __repr__(self) -> str:
        return f"<Router {self._core!r}>"

    # --- for the API --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ProcessState:
        return self._core.state

    def submit(self, spec: RequestSpec, tenant: str = "", trace: RequestTrace | None = None) -> Generation:
        """Take a request; its id must be new. ``trace``: of its call. Raises `Overloaded` or `Draining`."""
        now = self._clock.now()
        timeline = self.timelines.arrived(spec, now, tenant, trace)
        call = self.calls.find(spec.id)
        if call is not None and call.is_estimated:
            timeline.is_estimated = True
            spec = call.fitting(spec, self.view().smallest_pool(spec.service))
        effects = self._core.submit(spec, timeline, now, tenant)
        generation = self._generations[spec.id] = LiveGeneration(timeline, self._cancel, self._finish)
        self._carry_out(effects)
        return generation

    @property
    def calls(self) -> ForwardedCalls:
        """The calls to servers: whoever submits a request for one adds its call first, and removes it at the end."""
        return self._servers.calls

    async def tokenize(self, service: str, body: CallBody) -> list[int] | None:
        """Ask a server how it would tokenise the prompt of a call; None: none tells."""
        return await self._servers.tokenize(service, body)

    @property
    def num_filling(self) -> int:
        """Return how many lines of batches wait for an engine with something to spare."""
        return self._core.dispatcher.num_filling

    def view(self) -> ClusterView:
        """The engines as this gateway sees them now."""
        return self._core.monitor.view()

    def statuses(self) -> Mapping[str, EngineStatus]:
        """Return what the living engines said last."""
        return {engine: heard.status for engine, heard in self._core.monitor.statuses.items()}

    def report(self, now: float) -> Mapping[str, Any]:
        """Return what ``mesh status --json`` says, as this gateway hears it."""
        core = self._core
        said: dict[str, BroadcastMessage] = {**self.statuses(), **core.heard.statuses(now)}
        daemon, heard = self._topology.placement, core.marks.heard
        if daemon is not None and heard is not None and now - core.marks.heard_at <= LEASES_SHOWN * self._lease_s:
            said[daemon.id] = heard
        if core.said is not None:
            said[self.name] = core.said
        return report(self._topology, named_in_topology(self._topology, said))

    def breakers(self) -> Mapping[str, Breaker]:
        """Return how this gateway fared with the engines."""
        return self._core.dispatcher.breakers.known()

    @property
    def readers(self) -> MeshReaders:
        """Return what metrics read of the mesh, when they are asked for."""
        dispatcher = self._core.dispatcher
        return MeshReaders(
            self.statuses,
            self._core.heard.children,
            lambda: dispatcher.wanted(self._clock.now()),
            dispatcher.num_by_service,
            dispatcher.num_waiting_by_service,
        )

    def admin_urls(self) -> Mapping[str, str]:
        """Return where operators reach the living gateways, this one included."""
        return self._core.admin_urls(self._clock.now())

    @property
    def marks(self) -> MarkKeeper:
        """Return what this gateway keeps for the placement daemon."""
        return self._core.marks

    @property
    def lengths(self) -> LengthPredictor:
        """Return how long answers are, and how well that was predicted."""
        return self._core.dispatcher.lengths

    def status(self) -> GatewayStatus:
        """The next status to publish."""
        return self._core.status(self._clock.now())

    # --- for operators ------------------------------------------------------------------------------------------------

    @property
    def policy(self) -> PolicyChoice:
        """Return the policy in force."""
        return self._core.policy

    def choose_policy(self, spec: PolicySpec) -> PolicyChoice:
        """Run this policy from now on, and let the other gateways know. Raise `UserError` if there is none such."""
        self._carry_out(self._core.choose_policy(spec, self._clock.now()))
        return self._core.policy

    @property
    def added(self) -> AddedAdapters:
        """Return the adapters that were added while the mesh runs."""
        return self._core.added

    def serve_adapter(self, wanted: AddedAdapter) -> bool:
        """Serve an adapter from now on, or no more, and let the other gateways know. Return whether that is so now."""
        self._carry_out(self._core.serve_adapter(wanted, self._clock.now()))
        known = self.added.known.get(wanted.adapter.service)
        return known is not None and (known.adapter, known.is_removed) == (wanted.adapter, wanted.is_removed)

    def order(self, engine: str, order: Drain | LoadService | UnloadService) -> None:
        """Tell an engine what an operator wants."""
        self._carry_out(self._core.order(engine, order, self._clock.now()))

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run and never return; cancel it."""
        self._pulse = Pulse(self._sockets.pulse, self._heartbeat_s)
        try:
            self._carry_out(self._core.start(self._clock.now()))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take_messages())
                tasks.create_task(self._take_statuses())
                tasks.create_task(self._welcome())
                tasks.create_task(self._run_timers())
                tasks.create_task(self._servers.run())
        finally:
            self._pulse.stop()

    def open(self, url: str, admin_url: str) -> None:
        """The API listens at ``url``, and for operators at ``admin_url``: say that this gateway is ready."""
        self._carry_out(self._core.open(url, admin_url, self._clock.now()))

    def leave(self) -> None:
        """A successor takes new connections; what still comes on old ones is served."""
        self._carry_out(self._core.leave(self._clock.now()))

    async def drain(self) -> None:
        """Take nothing new; return when all requests have ended, at the latest after the topology's ``drain_s``."""
        self._carry_out(self._core.drain(self._clock.now()))
        await self._rests.wait()

    async def _take_messages(self) -> None:
        num_taken = 0
        async for sender, message, _ in self._sockets.messages():
            self.take(sender, message)
            num_taken += 1
            if num_taken % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _take_statuses(self) -> None:
        async for sender, message in self._sockets.beacons(lambda _: True):
            self.hear(sender, message)

    async def _welcome(self) -> None:
        async for _ in self._sockets.subscribers():
            self._carry_out(self._core.welcome(self._clock.now()))

    def take(self, sender: Sender, message: GatewayMessage) -> None:
        """A message for this gateway."""
        self._carry_out(self._core.receive(sender.process, message, self._clock.now()))

    def hear(self, sender: Sender, status: BroadcastMessage | None) -> None:
        """Take a process's status; None: a pulse."""
        self._carry_out(self._core.hear(sender, status, self._clock.now()))

    # --- servers ------------------------------------------------------------------------------------------------------

    def tell(self, engine: str, message: EngineAnswer) -> None:
        """The adapter of a server says this, as an engine would."""
        self._carry_out(self._core.receive(engine, message, self._clock.now()))

    def hear_server(self, sender: Sender, status: EngineStatus) -> None:
        """How a server is, as its adapter sees it."""
        self._carry_out(self._core.hear(sender, status, self._clock.now()))

    def tell_prefixes(self, engine: str, service: str, changed: PrefixesChanged) -> None:
        """A server says which prefixes it keeps."""
        kept, gone, cleared = changed.kept, changed.gone, changed.cleared
        self._core.dispatcher.prefixes.tell(engine, service, kept, gone, cleared=cleared)

    def lose_server(self, sender: Sender) -> None:
        """A server does not answer any more."""
        self._carry_out(self._core.lose(sender, self._clock.now()))

    def fall_behind(self, request: str, num_bytes: int) -> None:
        """Its consumer leaves too much of a request unread."""
        self._carry_out(self._core.fall_behind(request, num_bytes, self._clock.now()))

    def goes_on(self, request: str, by: str) -> None:
        """An answer goes on at another server, in this way."""
        if (timeline := self.timelines.of(request)) is not None:
            timeline.seam = by

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _run_timers(self) -> None:
        while True:
            self._rearm.clear()
            self._armed_at = self._core.next_deadline()
            delay_s = None if self._armed_at is None else max(0.0, self._armed_at - self._clock.now())
            try:
                async with asyncio.timeout(delay_s):
                    await self._rearm.wait()
            except TimeoutError:
                self._carry_out(self._core.expire(self._clock.now()))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _cancel(self, request: str) -> None:
        self._generations.pop(request, None)
        self._carry_out(self._core.cancel(request, self._clock.now()))

    def _finish(self, request: str) -> None:
        self._generations.pop(request, None)
        self._carry_out(self._core.finish(request, self._clock.now()))

    def _carry_out(self, effects: Iterable[GatewayEffect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(request, batch):
                    self._deliver(request, batch)
                case SendToEngine(to, message):
                    if (server := self._servers.find(to)) is not None:
                        server.take(message)
                    else:
                        self._sockets.send(to, message)
                case SetRoute(request, route):
                    self._set_route(request, route)
                case Fail(request, error):
                    self._fail(request, error)
                case _:
                    self._carry_out_rare(effect)
        deadline = self._core.next_deadline()
        if deadline is not None and (self._armed_at is None or deadline < self._armed_at):
            self._rearm.set()

    def _carry_out_rare(self, effect: GatewayEffect) -> None:
        match effect:
            case Publish():
                self._publish_soon()
            case Follow(processes):
                self._sockets.subscribe(processes)
            case Forget(engine):
                log.warning("engine lost", engine=engine)
                if engine not in self._servers:
                    self._sockets.forget(engine)
            case TakePolicy(choice):
                log.info("policy taken", policy=choice.name, parameters=choice.parameters, version=choice.version)
            case TakeAdapters(served):
                log.info("adapters taken", adapters=sorted(served))
                self.on_adapters(served)
            case ChangeAdapters(asker, order):
                self.on_adapter_order(asker, order)
            case DeclinePolicy(choice, reason):
                log.error("policy not taken", policy=choice.name, reason=reason)
            case TellPlaces(asker, message):
                self._sockets.answer(asker, message)
            case Rest():
                self._rests.set()

    def _publish_soon(self) -> None:
        """In this turn of the event loop, once for all that changes in it."""
        if not self._will_publish:
            self._will_publish = True
            asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        self._will_publish = False
        if self._pulse is not None:
            self._pulse.sign()
        self._sockets.publish(self._core.status(self._clock.now()))

    def _deliver(self, request: str, batch: TokenBatch) -> None:
        generation = self._generations.get(request)
        if generation is None:
            return
        generation.put(batch)
        if batch.finish is not None:
            del self._generations[request]
        elif generation.pending_bytes > MAX_PENDING_BYTES:
            self._carry_out(self._core.fall_behind(request, generation.pending_bytes, self._clock.now()))

    def _set_route(self, request: str, route: Route) -> None:
        event = "dispatched anew" if route.attempt else "dispatched"
        self._log.debug(event, request=request, prefill=route.prefill_engine, decode=route.decode_engine)

    def _fail(self, request: str, error: RouterError) -> None:
        generation = self._generations.pop(request, None)
        trace = {"trace": generation.trace_id} if generation is not None and generation.trace_id else {}
        log.info("request failed", request=request, reason=str(error), **trace)
        if generation is not None:
            generation.fail(error)
