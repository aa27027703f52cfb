"""A gateway's state machine: events in (methods), effects out (`router.effects`). No sockets, clock or event loop.

Theory of operation. The shell (`router.gateway`, or `simulation.gateway` in virtual time) passes on whatever happens: a
request of the API, a message, a status, that a consumer falls behind, that time has passed. Each event is answered with
effects, which the shell carries out in their order. It calls `expire` at `next_deadline`, which any event may change.
How single requests are dispatched and recovered is the `Dispatcher`'s; which processes live, which policy decides, what
the gateway says of itself, whom it cuts off and how it ends is decided here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from mesh.addresses import owner_of, supervisors
from mesh.effects import Follow, Publish, Rest
from mesh.errors import UserError
from mesh.membership.catching_up import CatchingUp
from mesh.membership.membership import ended_incarnations
from mesh.membership.status_pace import StatusPace
from mesh.topology.schema import PolicySpec, Topology
from mesh.wire.adapters import AddAdapter, AddedAdapter, RemoveAdapter
from mesh.wire.control import (
    Drain,
    DrainServer,
    LoadService,
    Locate,
    PolicyChoice,
    ProcessState,
    RequestPlaces,
    SetPolicy,
    UnloadService,
)
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, GatewayMessage
from mesh.wire.placement import PlacementStatus
from mesh.wire.prefixes import PrefixesHeld, TellPrefixes
from mesh.wire.requests import FinishReason, RequestSpec
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from router.adapters.added import AddedAdapters, word_for_engines
from router.api.openai.input.ids import is_meant
from router.effects import (
    ChangeAdapters,
    DeclinePolicy,
    Effect,
    Fail,
    GatewayEffect,
    SendToEngine,
    TakeAdapters,
    TakePolicy,
    TellPlaces,
)
from router.generation import Draining, Fault, RequestFailed, RouterError
from router.history.marks import MarkKeeper
from router.history.records import Outcome
from router.history.tallies import Tallies
from router.history.timeline import RequestTimeline
from router.policies.capabilities import UsesPrefixes
from router.policies.in_force import PolicyInForce
from router.policies.registry import with_defaults
from router.requests.dispatcher import Dispatcher
from router.servers.drains import ServerDrains
from router.view.monitor import Monitor
from router.view.processes import HeardProcesses

MAX_LAG_S: Final = 0.05  # of a timer; beyond it, statuses have been waiting to be read, and silence proves nothing


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What a gateway is made of. ``name``: one of the two that it has in the mesh. ``monitor`` is the dispatcher's."""

    topology: Topology
    name: str
    pid: int
    dispatcher: Dispatcher
    monitor: Monitor
    policy: PolicyInForce
    tallies: Tallies


class GatewayCore:
    """One gateway. Times are seconds of one monotonic clock. Call `start` first."""

    def __init__(self, parts: GatewayParts) -> None:
        topology = parts.topology
        spec = topology.gateway(owner_of(parts.name))
        self.dispatcher: Final = parts.dispatcher
        self.monitor: Final = parts.monitor
        self.marks: Final = MarkKeeper()
        self.said: GatewayStatus | None = None  # the last status
        self.state = ProcessState.STARTING
        self._name = parts.name
        self._pid = parts.pid
        self._host = spec.host
        self._policy = parts.policy
        self._tallies = parts.tallies
        self._timing = timing = topology.timing
        self._pace = StatusPace(timing.heartbeat_s, timing.status_gap_s)
        self._supervisor_of: Mapping[str, str] = supervisors(topology)
        silence_s = 2 * max(timing.lease_s, timing.heartbeat_s)
        self.heard: Final = HeardProcesses(set(self._supervisor_of.values()), self._supervisor_of.keys(), silence_s)
        self._unknown_choice: PolicyChoice | None = None  # the last one that this gateway could not take
        self._servers = tuple(topology.servers)
        self._drains = ServerDrains(self._servers)
        self.added: Final = AddedAdapters.of(topology)
        self._has_successor = False
        self._url, self._admin_url = f"{spec.scheme}://{spec.address}:{spec.port}", ""
        self._catching_up = CatchingUp(MAX_LAG_S)
        self._gives_up_at: float | None = None
        self._seq = 0

    def __repr__(self) -> str:
        return f"<GatewayCore {self._name} {self.state} {self.dispatcher!r} {self.monitor!r}>"

    @property
    def policy(self) -> PolicyChoice:
        """Return which policy decides, and who chose it."""
        return self._policy.choice

    # --- requests -----------------------------------------------------------------------------------------------------

    def submit(self, spec: RequestSpec, timeline: RequestTimeline, now: float, tenant: str = "") -> list[GatewayEffect]:
        """A request of the API; its id is new. Raises `Overloaded` (a bound is reached) or `Draining`."""
        try:
            if self.state is ProcessState.DRAINING:
                raise Draining
            return self._told(self.dispatcher.submit(spec, timeline, now, tenant))
        except RouterError as error:
            self.dispatcher.timelines.failed(timeline, error, now)
            raise

    def cancel(self, request: str, now: float) -> list[GatewayEffect]:
        """Cancel a request that its consumer does not want any more. Unknown requests are ignored, here and below."""
        return self._told(self.dispatcher.cancel(request, now, Outcome.CANCELLED, "no longer wanted"))

    def finish(self, request: str, now: float) -> list[GatewayEffect]:
        """Note that its consumer has its whole answer, perhaps before the engine's end of it."""
        return self._told(self.dispatcher.cancel(request, now, Outcome.FINISHED, str(FinishReason.STOP)))

    def fall_behind(self, request: str, num_bytes: int, now: float) -> list[GatewayEffect]:
        """Cut off a request whose consumer has left too much unread."""
        return self._cut_off(request, f"cut off: {num_bytes} bytes were waiting to be read", Fault.CLIENT, now)

    def _cut_off(self, request: str, reason: str, fault: Fault, now: float) -> list[GatewayEffect]:
        effects = self.dispatcher.cancel(request, now, Outcome.FAILED, reason)
        return self._told([*effects, Fail(request, RequestFailed(reason, fault))])

    def _told(self, effects: Sequence[Effect]) -> list[GatewayEffect]:
        """What the dispatcher wants done, and what follows from it."""
        return [*effects, *self._rest()] if self.state is ProcessState.DRAINING else list(effects)

    # --- the mesh -----------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: GatewayMessage, now: float) -> list[GatewayEffect]:
        """A message of the process ``sender`` to this gateway."""
        if isinstance(message, SetPolicy):
            return self._consider(message.choice, now)
        if isinstance(message, DrainServer):
            return [*self._drains.order(message.server, undo=message.undo), self._publish(now)]
        if isinstance(message, AddAdapter | RemoveAdapter):
            return [ChangeAdapters(sender, message)]
        if isinstance(message, PrefixesHeld):
            self.dispatcher.prefixes.hear(sender, message)
            return []
        if isinstance(message, Locate):
            places = self.dispatcher.locate(lambda choice: is_meant(choice, message.asked))
            return [TellPlaces(sender, RequestPlaces(message.asked, places))]
        return self._told(self.dispatcher.receive(sender, message, now))

    def hear(self, sender: Sender, status: BroadcastMessage | None, now: float) -> list[GatewayEffect]:
        """Take a process's status; None: a pulse, which says that it lives and no more."""
        match status:
            case EngineStatus():
                effects = self.dispatcher.observe(sender, status, now)
                return self._told([*effects, *self._ask_of_prefixes(sender.process, status.prefix_news)])
            case None:
                self.monitor.renew(sender, now)
                self.heard.renew(sender.process, now)
            case SupervisorStatus():
                self.heard.hear_supervisor(sender.process, status)
                return self._declare_dead(sender.process, status, now)
            case GatewayStatus():
                self.heard.hear_gateway(sender.process, status, now)
                self.dispatcher.hear_gateway(sender, status, now)
                told: list[GatewayEffect] = []
                told += self._drains.hear(status.drains) if status.drains else []
                told += self._take_adapters(self.added.hear(status.adapters), now) if status.adapters else []
                return told if status.policy is None else [*told, *self._consider(status.policy, now)]
            case PlacementStatus():
                self.marks.hear(status, self._tallies.read(), now)
        return []

    def _ask_of_prefixes(self, engine: str, number: int) -> list[Effect]:
        """Ask an engine what it holds if the number of its news says that something is missing here."""
        wants = number and self._policy.policy.offers(UsesPrefixes) is not None
        is_missing = wants and self.dispatcher.prefixes.must_ask(engine, number)
        return [SendToEngine(engine, TellPrefixes())] if is_missing else []

    def lose(self, server: Sender, now: float) -> list[GatewayEffect]:
        """A server does not answer any more: what it had goes on elsewhere."""
        return self._told(self.dispatcher.declare_dead(server, now))

    def _declare_dead(self, supervisor: str, status: SupervisorStatus, now: float) -> list[GatewayEffect]:
        """A supervisor saw processes end: nobody waits for their leases."""
        effects: list[GatewayEffect] = []
        for ended in ended_incarnations(supervisor, status, self._supervisor_of):
            self.heard.forget(ended.process)
            effects += self._told(self.dispatcher.declare_dead(ended, now))
        return effects

    def _consider(self, choice: PolicyChoice, now: float) -> list[GatewayEffect]:
        """Somebody chose a policy, or another gateway runs one: take it if it is later than ours."""
        if choice == self._unknown_choice or not self._policy.is_later(choice):
            return []
        try:
            self._policy.take(choice, now)
        except UserError as error:
            self._unknown_choice = choice
            return [DeclinePolicy(choice, str(error))]
        effects = self._told(self.dispatcher.switch(self._policy.policy, now))
        return [TakePolicy(choice), *effects, self._publish(now)]

    # --- operators ----------------------------------------------------------------------------------------------------

    def choose_policy(self, spec: PolicySpec, now: float) -> list[GatewayEffect]:
        """An operator chose a policy for the mesh: the others hear of it in this gateway's status. Raise `UserError` if
        there is none such.
        """
        wanted = with_defaults(spec)
        heard = self._policy.choice.version, 0 if self._unknown_choice is None else self._unknown_choice.version
        effects = self._consider(PolicyChoice(wanted.name, dict(wanted.parameters), max(heard) + 1), now)
        for effect in effects:
            if isinstance(effect, DeclinePolicy):
                raise UserError(effect.reason)
        return effects

    def order(self, engine: str, order: Drain | LoadService | UnloadService, now: float) -> list[GatewayEffect]:
        """An operator wants an engine to do this. Its statuses tell the outcome."""
        if isinstance(order, Drain) and engine in self._drains:
            return [*self._drains.order(engine, undo=order.undo), self._publish(now)]
        return [SendToEngine(engine, order)]

    def serve_adapter(self, wanted: AddedAdapter, now: float) -> list[GatewayEffect]:
        """An operator wants an adapter served from now on, or no more: the others hear of it in this gateway's status.

        Engines that have its base load it, as far as they have room.
        """
        new = self.added.order(wanted)
        word = word_for_engines(wanted)
        engines = [engine.id for engine in self.monitor.view().serving(wanted.base) if engine.id not in self._servers]
        tells = [SendToEngine(engine, word) for engine in engines] if new else []
        return [*self._take_adapters(new, now), *tells]

    def _take_adapters(self, new: Sequence[AddedAdapter], now: float) -> list[GatewayEffect]:
        return [TakeAdapters(self.added.served), self._publish(now)] if new else []

    # --- its own life -------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[GatewayEffect]:
        """Begin: the gateway hears everybody but itself, and says that it is starting."""
        self._pace.start(now)
        others = self._supervisor_of.keys() - {self._name} | set(self._supervisor_of.values())
        return [Follow(frozenset(others)), self._publish(now)]

    def open(self, url: str, admin_url: str, now: float) -> list[GatewayEffect]:
        """The API listens at ``url``, and for operators at ``admin_url``: the gateway is ready."""
        self.state, self._url, self._admin_url = ProcessState.READY, url, admin_url
        return [self._publish(now)]

    def admin_urls(self, now: float) -> dict[str, str]:
        """Return where operators reach the living gateways, this one included, by id."""
        mine = {owner_of(self._name): self._admin_url} if self._admin_url else {}
        return self.heard.admin_urls(now) | mine

    def welcome(self, now: float) -> list[GatewayEffect]:
        """Somebody began to listen: a status follows, as soon as the pace allows."""
        return [] if self._pace.puts_off(now) else [self._publish(now)]

    def leave(self, now: float) -> list[GatewayEffect]:
        """A successor takes new connections; what still comes on old ones is served."""
        self._has_successor = True
        return [self._publish(now)]

    def drain(self, now: float) -> list[GatewayEffect]:
        """Take nothing new. `Rest` follows when all requests have ended, after ``drain_s`` of the topology at most."""
        self.state, self._gives_up_at = ProcessState.DRAINING, now + self._timing.drain_s
        return [self._publish(now), *self._rest()]

    def _rest(self) -> list[GatewayEffect]:
        return [Rest()] if self.state is ProcessState.DRAINING and not self.dispatcher.num_requests else []

    def _publish(self, now: float) -> Publish:
        self._pace.published(now)
        return Publish()

    def status(self, now: float) -> GatewayStatus:
        """The next status to publish."""
        self._seq += 1
        heard = self.monitor.statuses
        self.said = GatewayStatus(
            seq=self._seq,
            state=ProcessState.DRAINING if self._has_successor else self.state,
            host=self._host,
            pid=self._pid,
            url=self._url,
            admin_url=self._admin_url,
            num_requests=self.dispatcher.num_requests,
            num_waiting=self.dispatcher.num_waiting,
            policy=self._policy.choice,
            policy_age_s=self._policy.age_s(now),
            breakers={engine: str(state) for engine, state in self.dispatcher.breakers.states(now).items()},
            services=self._tallies.read(),
            wanted=self.dispatcher.wanted(now),
            mark=self.marks.mark(now),
            drains=self._drains.known,
            adapters=self.added.known,
            servers={one: heard[one].status for one in self._servers if one in heard},
        )
        return self.said

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when to call `expire`; None: not before something else happens."""
        earliest = self._catching_up.looks_at(self._due_at())
        for deadline in (self._pace.due_at, self._gives_up_at):
            if deadline is not None and deadline < earliest:
                earliest = deadline
        return None if earliest == inf else earliest

    def _due_at(self) -> float:
        """Return when a lease, an answer or a promise is over."""
        due_at = self.dispatcher.next_deadline()
        return inf if due_at is None else due_at

    def expire(self, now: float) -> list[GatewayEffect]:
        """Act on the time: a heartbeat is due, or leases, answers and promises may have ended."""
        effects: list[GatewayEffect] = []
        if self._pace.due_at is not None and now >= self._pace.due_at:
            effects.append(self._publish(now))
        if not self._catching_up.puts_off(self._due_at(), now):
            effects += self._told(self.dispatcher.expire(now))
        if self._gives_up_at is not None and now >= self._gives_up_at:
            effects += self._give_up(now)
        return effects

    def _give_up(self, now: float) -> list[GatewayEffect]:
        self._gives_up_at = None
        reason, open_ones = "the gateway shut down before the request was finished", self.dispatcher.timelines.open
        return [effect for one in open_ones for effect in self._cut_off(one.id, reason, Fault.SERVER, now)]

    def check_invariants(self) -> None:
        """Check the state of all parts, for tests."""
        self.dispatcher.check_invariants()
