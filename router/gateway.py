"""The asyncio shell around one gateway's dispatcher: feeds it messages, statuses and time; carries out its effects."""

import asyncio
import os
from collections.abc import Iterable, Mapping

import structlog

from mesh.addresses import owner_of, supervisors
from mesh.clock import Clock
from mesh.errors import UserError
from mesh.membership.catching_up import catch_up
from mesh.membership.heartbeat import Heartbeat
from mesh.membership.membership import ended_lives
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import Topology
from mesh.wire.control import PolicyChoice, ProcessState, SetPolicy
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, GatewayMessage
from mesh.wire.placement import PlacementStatus
from mesh.wire.requests import FinishReason, RequestSpec
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from router.effects import Deliver, Effect, Fail, Forget, Send, SetRoute
from router.generation import Draining, Fault, Generation, RequestFailed, Route, RouterError, TokenBatch
from router.history.lengths import LengthPredictor
from router.history.marks import MarkKeeper
from router.history.records import Outcome
from router.history.tallies import Tallies
from router.history.timelines import Timelines
from router.live_generation import LiveGeneration
from router.policies.in_force import PolicyInForce
from router.requests.breakers import Breaker
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.cluster_view import ClusterView
from router.view.monitor import Monitor

MAX_PENDING_BYTES = 1 << 20  # of batches that a consumer may leave untaken before it is cut off
MESSAGES_PER_TURN = 16  # a full inbox never waits, so consumers get their turn in between
MAX_LAG_S = 0.05  # of a timer; beyond it, statuses have been waiting to be read, and silence proves nothing

log = structlog.get_logger()


class Router:
    """One gateway's `RequestRouter`. Submit only while `run` runs. ``timelines`` say what becomes of each request.

    ``name``: one of the two that the gateway has in the mesh. ``tallies``: one of the readers of the timelines.
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
        self._topology = topology
        self._spec = spec
        self._name = name
        self._sockets = sockets
        self._clock = clock
        self.timelines = timelines
        self._tallies = tallies
        self.marks = MarkKeeper()
        self._policy = policy
        self._unknown_choice: PolicyChoice | None = None  # the last one that this gateway could not take
        self._supervisor_of = supervisors(topology)
        self._state = ProcessState.STARTING
        self._has_successor = False
        self._url, self._admin_url = f"{spec.scheme}://{spec.address}:{spec.port}", ""
        self._monitor = Monitor(timing.lease_s, name)
        limits = DispatchLimits(spec.max_requests, spec.max_waiting, timing.reply_s, timing.stall_s)
        self._dispatcher = Dispatcher(policy.policy, self._monitor, limits, timelines)
        self._generations: dict[str, LiveGeneration] = {}
        self._heartbeat = Heartbeat(sockets, self.status, timing.heartbeat_s)
        self._seq = 0
        self._armed_at: float | None = None
        self._rearm = asyncio.Event()
        self._idle = asyncio.Event()
        self._log = (
            log.bind()
        )  # a logger that is bound anew for each line costs what the line does not if it is dropped

    def __repr__(self) -> str:
        return f"<Router {self._name} {self._state} {self._dispatcher!r} {self._monitor!r}>"

    # --- for the API --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ProcessState:
        return self._state

    def submit(self, spec: RequestSpec, tenant: str = "") -> Generation:
        """Take a request; its id must be new. Raises `Overloaded` (a bound is reached) or `Draining`."""
        now = self._clock.now()
        timeline = self.timelines.arrived(spec, now)
        try:
            if self._state is ProcessState.DRAINING:
                raise Draining
            effects = self._dispatcher.submit(spec, timeline, now, tenant)
        except RouterError as error:
            self.timelines.failed(timeline, error, now)
            raise
        generation = self._generations[spec.id] = LiveGeneration(timeline, self._cancel, self._finish)
        self._carry_out(effects)
        return generation

    def view(self) -> ClusterView:
        """The engines as this gateway sees them now."""
        return self._monitor.view()

    def statuses(self) -> Mapping[str, EngineStatus]:
        """What the living engines said last."""
        return {engine: heard.status for engine, heard in self._monitor.statuses.items()}

    def breakers(self) -> Mapping[str, Breaker]:
        """How this gateway fared with the engines."""
        return self._dispatcher.breakers.known()

    def status(self) -> GatewayStatus:
        """The next status to publish."""
        now = self._clock.now()
        self._seq += 1
        return GatewayStatus(
            seq=self._seq,
            state=ProcessState.DRAINING if self._has_successor else self._state,
            host=self._spec.host,
            pid=os.getpid(),
            url=self._url,
            admin_url=self._admin_url,
            num_requests=self._dispatcher.num_requests,
            num_waiting=self._dispatcher.num_waiting,
            policy=self._policy.choice,
            policy_age_s=self._policy.age_s(now),
            breakers={engine: str(state) for engine, state in self._dispatcher.breakers.states(now).items()},
            services=self._tallies.read(),
            wanted=self._dispatcher.wanted(now),
            mark=self.marks.mark(now),
        )

    @property
    def lengths(self) -> LengthPredictor:
        """How long answers are, and how well that was predicted."""
        return self._dispatcher.lengths

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Never returns; cancel it."""
        others = self._supervisor_of.keys() - {self._name}
        self._sockets.subscribe(others | set(self._supervisor_of.values()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeat.run())
            tasks.create_task(self._take_messages())
            tasks.create_task(self._take_statuses())
            tasks.create_task(self._run_timers())

    def open(self, url: str, admin_url: str) -> None:
        """The API listens at ``url``, and for operators at ``admin_url``: say that this gateway is ready."""
        self._state, self._url, self._admin_url = ProcessState.READY, url, admin_url
        self._heartbeat.poke()

    def leave(self) -> None:
        """A successor takes new connections; what still comes on old ones is served."""
        self._has_successor = True
        self._heartbeat.poke()

    async def drain(self) -> None:
        """Take nothing new; return when all requests have ended, at the latest after the topology's ``drain_s``."""
        self._state = ProcessState.DRAINING
        self._heartbeat.poke()
        try:
            async with asyncio.timeout(self._topology.timing.drain_s):
                while self._generations:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            self._give_up()

    def _give_up(self) -> None:
        error = RequestFailed("the gateway shut down before the request was finished", Fault.SERVER)
        for generation in list(self._generations.values()):
            self._cut_off(generation, error)

    async def _take_messages(self) -> None:
        num_taken = 0
        async for sender, message, _ in self._sockets.messages():
            self.take(sender, message)
            num_taken += 1
            if num_taken % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _take_statuses(self) -> None:
        async for sender, message in self._sockets.beacons(lambda _: True):
            if message is None:
                self._monitor.renew(sender, self._clock.now())
            else:
                self.hear(sender, message)

    def take(self, sender: Sender, message: GatewayMessage) -> None:
        """A message for this gateway."""
        if isinstance(message, SetPolicy):
            self._consider(message.choice)
        else:
            self._carry_out(self._dispatcher.receive(sender.process, message, self._clock.now()))

    def hear(self, sender: Sender, status: BroadcastMessage) -> None:
        """Somebody's status."""
        if isinstance(status, EngineStatus):
            self._carry_out(self._dispatcher.observe(sender, status, self._clock.now()))
        elif isinstance(status, SupervisorStatus):
            self._declare_dead(sender.process, status)
        elif isinstance(status, GatewayStatus):
            self._dispatcher.hear_gateway(sender, status, self._clock.now())
            if status.policy is not None:
                self._consider(status.policy)
        elif isinstance(status, PlacementStatus):
            self.marks.hear(status, self._tallies.read(), self._clock.now())

    def _declare_dead(self, supervisor: str, status: SupervisorStatus) -> None:
        """A supervisor saw processes end: nobody waits for their leases."""
        for ended in ended_lives(supervisor, status, self._supervisor_of):
            if effects := self._dispatcher.declare_dead(ended, self._clock.now()):
                self._carry_out(effects)

    def _consider(self, choice: PolicyChoice) -> None:
        """Somebody chose a policy, or another gateway runs one: take it if it is later than ours."""
        if choice == self._unknown_choice or not self._policy.is_later(choice):
            return
        now = self._clock.now()
        try:
            self._policy.take(choice, now)
        except UserError as error:
            self._unknown_choice = choice
            log.error("policy not taken", policy=choice.name, reason=str(error))
            return
        log.info("policy taken", policy=choice.name, parameters=choice.parameters, version=choice.version)
        self._carry_out(self._dispatcher.switch(self._policy.policy, now))
        self._heartbeat.poke()

    async def _run_timers(self) -> None:
        while True:
            self._rearm.clear()
            self._armed_at = self._dispatcher.next_deadline()
            delay_s = None if self._armed_at is None else max(0.0, self._armed_at - self._clock.now())
            try:
                async with asyncio.timeout(delay_s):
                    await self._rearm.wait()
            except TimeoutError:
                if self._armed_at is not None:
                    await catch_up(self._clock, self._armed_at, MAX_LAG_S)
                self._carry_out(self._dispatcher.expire(self._clock.now()))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _cancel(self, request: str) -> None:
        self._stop(request, Outcome.CANCELLED, "no longer wanted")

    def _finish(self, request: str) -> None:
        self._stop(request, Outcome.FINISHED, str(FinishReason.STOP))

    def _stop(self, request: str, outcome: Outcome, reason: str) -> None:
        self._retire(request)
        self._carry_out(self._dispatcher.cancel(request, self._clock.now(), outcome, reason))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(request, batch):
                    self._deliver(request, batch)
                case Send(to, message):
                    self._sockets.send(to, message)
                case SetRoute(request, route):
                    self._place(request, route)
                case Fail(request, error):
                    self._fail(request, error)
                case Forget(engine):
                    log.warning("engine lost", engine=engine)
                    self._sockets.forget(engine)
        deadline = self._dispatcher.next_deadline()
        if deadline is not None and (self._armed_at is None or deadline < self._armed_at):
            self._rearm.set()

    def _deliver(self, request: str, batch: TokenBatch) -> None:
        generation = self._generations.get(request)
        if generation is None:
            return
        generation.put(batch)
        if batch.finish is not None:
            self._retire(request)
        elif generation.pending_bytes > MAX_PENDING_BYTES:
            error = RequestFailed(f"cut off: {generation.pending_bytes} bytes were waiting to be read", Fault.CLIENT)
            self._cut_off(generation, error)

    def _place(self, request: str, route: Route) -> None:
        event = "dispatched anew" if route.attempt else "dispatched"
        self._log.debug(event, request=request, prefill=route.prefill_engine, decode=route.decode_engine)

    def _fail(self, request: str, error: RouterError) -> None:
        log.info("request failed", request=request, reason=str(error))
        if generation := self._retire(request):
            generation.fail(error)

    def _cut_off(self, generation: LiveGeneration, error: RouterError) -> None:
        self._stop(generation.id, Outcome.FAILED, str(error))
        log.info("request failed", request=generation.id, reason=str(error))
        generation.fail(error)

    def _retire(self, request: str) -> LiveGeneration | None:
        """The request is over."""
        generation = self._generations.pop(request, None)
        if not self._generations:
            self._idle.set()
        return generation
