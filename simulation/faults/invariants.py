"""Checks what must hold after every event of a simulation, whatever goes wrong in it.

- Each token is delivered once, in order, and by the request's present owner: engines sample tokens here that say who
  sampled them (`TracedToken`), and `WatchedTimelines` read them as a client would.
- No two engines run a request under one epoch, nor under one attempt unless messages come twice.
- Engines and gateways pass their own `check_invariants`: every block is held by whom it belongs to.
- No reservation is kept for longer than its deadline after its sender's last word.
- Queues stay within their bounds.
- A request that ended is soon gone from all engines. It ends once, in bounded time, and is not dispatched in a storm.

An engine is checked after each event that concerned it. Every `FULL_EVERY` times, and at rest, it is checked block by
block, which takes as long as its pool is large. Gateways are checked after every `GATEWAYS_EVERY` events of the run,
and at rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol, TypeVar

from engines.effects import DropModel, Effect
from engines.engine_request import EngineRequest
from engines.scheduling.batch import ChunkResult, StepResult
from engines.scheduling.service import Service
from engines.transfers.outcomes import EngineOutcome
from kvtransfer.protocol import Buffer
from kvtransfer.receive import ReceiveState
from mesh.wire.messages import EngineMessage, TransferMessage
from mesh.wire.requests import Epoch, RequestSpec
from router.generation import TokenBatch
from router.history.records import Outcome
from router.history.timeline import RequestTimeline, Seen
from router.history.timelines import TimelineReaders, Timelines
from router.history.trace import RequestTrace
from router.policies.policy import Decision, Dispatch
from router.requests.overload.places import FILLER_PLACES
from simulation.engines.engine import SimulatedEngine
from simulation.gateway import SimulatedGateway
from simulation.kernel import Kernel
from simulation.observer import CoreParts, ObservedCore

FULL_EVERY = 8
GATEWAYS_EVERY = 8
SLACK_S = 0.01  # of a deadline: rounding, and the order of what happens at one moment
CATCH_UP_S = 0.3  # after an engine was held up: what waited happens first
DISPATCHES_AT_ONCE = 16

Own = tuple[str, Epoch]  # a request that an engine runs
Key = TypeVar("Key")


class InvariantError(AssertionError):
    """Something that must never happen has. ``request`` is whom it befell, if one can be named."""

    def __init__(self, what: str, request: str | None = None) -> None:
        super().__init__(what)
        self.request = request


class TracedToken(NamedTuple):
    """A token that says who sampled it: ``position`` counts generated tokens."""

    position: int
    attempt: int
    hop: int

    @property
    def token(self) -> int:
        return self.position << 16 | (self.attempt & 0xFF) << 8 | self.hop & 0xFF

    @classmethod
    def read(cls, token: int) -> "TracedToken":
        return cls(token >> 16, token >> 8 & 0xFF, token & 0xFF)


@dataclass(frozen=True, slots=True)
class InvariantBounds:
    """Seconds. From ``calm_at_s`` of the trace on nothing goes wrong any more; until then, time does not count."""

    calm_at_s: float = 0.0
    end_s: float = inf  # for a request to end, after it arrived
    gap_s: float = inf  # between two tokens of a request
    gone_s: float = inf  # for engines to let go of a request that ended
    dispatches_per_s: float = inf  # of one request, beyond `DISPATCHES_AT_ONCE`
    max_events: float = inf
    has_duplicates: bool = False
    held_up: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # engines, from when to when


@dataclass(slots=True)
class _Open:
    """A request as its client sees it."""

    spec: RequestSpec
    arrived_at: float
    token_at: float = -inf  # the last one
    num_tokens: int = 0
    num_dispatched: int = 0
    last: TracedToken | None = None


class CheckedSimulation(Protocol):
    """What invariants look at in a `simulation.cluster.Simulation`: its clock, and the processes that live."""

    kernel: Kernel
    engines: dict[str, SimulatedEngine]
    gateways: dict[str, SimulatedGateway]


class Invariants:
    """Watches one run. Raises `InvariantError` out of the event that broke one."""

    def __init__(self, bounds: InvariantBounds) -> None:
        self.num_events = 0
        self.cores: list[WatchedCore] = []  # of all incarnations
        self._bounds = bounds
        self._simulation: CheckedSimulation | None = None
        self._touched: dict[WatchedCore, None] = {}
        self._owners: dict[Own, WatchedCore] = {}
        self._attempts: dict[tuple[str, int], WatchedCore] = {}
        self._open: dict[str, _Open] = {}  # in order of arrival
        self._ended_at: dict[str, float] = {}
        self._left_since: dict[WatchedCore, dict[str, float]] = {}  # requests that have ended, from when on it had them

    def __repr__(self) -> str:
        return f"<Invariants after {self.num_events} events, {len(self._open)} requests open>"

    # --- what is watched ----------------------------------------------------------------------------------------------

    def attach(self, simulation: CheckedSimulation) -> None:
        """Call before anything happens."""
        self._simulation = simulation
        simulation.kernel.on_event = self.check

    @property
    def simulation(self) -> CheckedSimulation:
        assert self._simulation is not None, "not attached"
        return self._simulation

    @property
    def now(self) -> float:
        return self.simulation.kernel.now

    def core(self, parts: CoreParts) -> "WatchedCore":
        """A new incarnation of an engine, watched."""
        core = WatchedCore(self, parts)
        self.cores.append(core)
        return core

    def timelines(self, readers: TimelineReaders) -> "WatchedTimelines":
        """Return the timelines of a new gateway, watched."""
        return WatchedTimelines(self, readers)

    def touch(self, core: "WatchedCore") -> None:
        self._touched[core] = None

    # --- after every event --------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.num_events += 1
        if self._touched:
            touched, self._touched = self._touched, {}
            for core in touched:
                self._check_engine(core)
        if self.num_events % GATEWAYS_EVERY == 0:
            self._check_gateways()
            self._check_progress()

    def at_rest(self) -> None:
        """Nothing is open, and nobody holds anything."""
        if self._open:
            raise InvariantError(f"{len(self._open)} requests never ended", next(iter(self._open)))
        for engine in self.simulation.engines.values():
            engine.core.check_invariants()
            for service in engine.core._services.values():
                if service.pool.num_held or service.queue.pinned:
                    raise InvariantError(f"at rest {engine!r} has {service.pool!r}, pinned: {service.queue.pinned}")
        for gateway in self.simulation.gateways.values():
            gateway.core.check_invariants()
            reservations = gateway.core.dispatcher._monitor._reservations
            if gateway.core.dispatcher.num_requests or reservations._engines:
                raise InvariantError(f"at rest {gateway!r} counts on {reservations!r}")

    # --- engines ------------------------------------------------------------------------------------------------------

    def _check_engine(self, core: "WatchedCore") -> None:
        if not self._is_alive(core):
            return
        self._check_owners(core)
        self._check_bounds(core)
        self._check_reservations(core)
        self._check_leftovers(core)
        core.num_checked += 1
        if core.num_checked % FULL_EVERY == 0:
            core.check_invariants()

    def _is_alive(self, core: "WatchedCore") -> bool:
        engine = self.simulation.engines.get(core.settings.id)
        return engine is not None and engine.core is core

    def _check_owners(self, core: "WatchedCore") -> None:
        runs = {(one.id, one.epoch) for one in core.running()}
        if runs == core.ran:
            return
        for request, epoch in core.ran - runs:
            _disown(self._owners, (request, epoch), core)
            _disown(self._attempts, (request, epoch.attempt), core)
        for request, epoch in runs - core.ran:
            other = self._owners.setdefault((request, epoch), core)
            if other is core and not self._bounds.has_duplicates:
                other = self._attempts.setdefault((request, epoch.attempt), core)
            if other is not core and self._is_alive(other):
                engines = f"{other.settings.id} and {core.settings.id}"
                raise InvariantError(f"{engines} run {request}, the latter under {epoch}", request)
            self._owners[request, epoch] = self._attempts[request, epoch.attempt] = core
        core.ran = runs

    @staticmethod
    def _check_bounds(core: "WatchedCore") -> None:
        most_running, most_waiting = core.settings.limits.max_running, core.settings.max_waiting
        for service in core._services.values():
            num_running, num_waiting = len(service.queue.running), len(core._backlog.not_started(service))
            if num_running > 2 * most_running or num_waiting > most_waiting + 2 * most_running:
                raise InvariantError(f"{num_running} requests run and {num_waiting} wait: {core!r}")

    def _check_reservations(self, core: "WatchedCore") -> None:
        for id_, incoming in core._handovers.arrivals._incoming.items():
            since, deadline_s = core.heard.get(id_, self.now), incoming.reserve.deadline_s
            is_late = incoming.machine.state is ReceiveState.RESERVED and self.now > since + deadline_s + SLACK_S
            if is_late and not self._was_held_up(core.settings.id, since):
                silence = f"{self.now - since:.2f} s after the last word of its sender"
                raise InvariantError(
                    f"{core.settings.id} keeps {id_} {silence}, for {deadline_s:.2f} s at most",
                    incoming.reserve.spec.id,
                )

    def _was_held_up(self, engine: str, since: float) -> bool:
        spans = self._bounds.held_up.get(engine, ())
        return any(start <= self.now and since <= end + CATCH_UP_S for start, end in spans)

    def _check_leftovers(self, core: "WatchedCore") -> None:
        """An engine that started again may take a request late that had waited for it, of a gateway that is gone."""
        before = self._left_since.get(core, {})
        here = {one: before.get(one, self.now) for one in core._requests if one in self._ended_at}
        self._left_since[core] = here
        for request, since in here.items():
            if self.now > max(since, self._bounds.calm_at_s) + self._bounds.gone_s:
                ended_s = self.now - self._ended_at[request]
                raise InvariantError(
                    f"{core.settings.id} still holds {request}, which ended {ended_s:.2f} s ago", request
                )

    # --- gateways -----------------------------------------------------------------------------------------------------

    def _check_gateways(self) -> None:
        for gateway in self.simulation.gateways.values():
            dispatcher = gateway.core.dispatcher
            dispatcher.check_invariants()
            most, num_fillers = dispatcher._limits.max_requests, dispatcher._in_flight.num_fillers
            if dispatcher.num_requests - num_fillers > most:
                raise InvariantError(f"more than {most} requests: {gateway!r}")
            if num_fillers > max(1, most // FILLER_PLACES):
                raise InvariantError(f"{num_fillers} lines of batches, where {most} requests may be: {gateway!r}")

    def _check_progress(self) -> None:
        if self.num_events > self._bounds.max_events:
            raise InvariantError(f"no rest after {self.num_events} events", next(iter(self._open), None))
        if self.now < self._bounds.calm_at_s:
            return
        for request, one in self._open.items():
            waited_s = self.now - max(one.arrived_at, self._bounds.calm_at_s)
            if waited_s > self._bounds.end_s:
                raise InvariantError(f"{request} has not ended {waited_s:.1f} s later", request)
            paused_s = self.now - max(one.token_at, self._bounds.calm_at_s)
            if one.num_tokens and paused_s > self._bounds.gap_s:
                raise InvariantError(f"{request} got no token for {paused_s:.1f} s", request)

    # --- what clients see ---------------------------------------------------------------------------------------------

    def arrived(self, spec: RequestSpec) -> None:
        self._open[spec.id] = _Open(spec, self.now)

    def dispatched(self, request: str, attempt: int) -> None:
        one = self._open[request]
        if attempt != one.num_dispatched:
            raise InvariantError(f"{request}: attempt {attempt} was sent after {one.num_dispatched} others", request)
        one.num_dispatched += 1
        if one.num_dispatched > DISPATCHES_AT_ONCE + self._bounds.dispatches_per_s * (self.now - one.arrived_at):
            raise InvariantError(f"{request} was dispatched {one.num_dispatched} times", request)

    def delivered(self, request: str, batch: TokenBatch) -> None:
        one = self._open[request]
        for token in batch.tokens:
            drawn = TracedToken.read(token)
            if drawn.position != one.num_tokens:
                raise InvariantError(f"{request}: {drawn} was delivered as token {one.num_tokens}", request)
            if drawn.attempt != (one.num_dispatched - 1) & 0xFF:
                raise InvariantError(f"{request}: {drawn} after {one.num_dispatched} dispatches", request)
            if one.last is not None and drawn.attempt == one.last.attempt and drawn.hop < one.last.hop:
                raise InvariantError(f"{request}: {drawn} was delivered after {one.last}", request)
            one.num_tokens, one.last, one.token_at = one.num_tokens + 1, drawn, self.now
        most = one.spec.sampling.max_tokens
        if one.num_tokens > most or (batch.finish is not None and one.num_tokens < most):
            raise InvariantError(f"{request} got {one.num_tokens} of {most} tokens, the end: {batch.finish}", request)

    def ended(self, request: str, outcome: Outcome) -> None:
        one = self._open.pop(request)
        if outcome is Outcome.FINISHED and one.num_tokens != one.spec.sampling.max_tokens:
            raise InvariantError(f"{request} finished with {one.num_tokens} tokens", request)
        self._ended_at[request] = self.now


class WatchedCore(ObservedCore):
    """An engine core that tells of each event, and whose tokens say who sampled them."""

    def __init__(self, invariants: Invariants, parts: CoreParts) -> None:
        super().__init__(parts)
        self.settings = parts.settings
        self.heard: dict[str, float] = {}  # when the sender of each transfer to here last said something
        self.ran: set[Own] = set()
        self.num_checked = 0
        self.num_loaded = 0
        self.num_dropped = 0
        self._invariants = invariants

    def running(self) -> Iterator[EngineRequest]:
        return (one for service in self._services.values() for one in service.queue.running)

    def receive(self, sender: str, message: EngineMessage, payload: Sequence[Buffer], now: float) -> list[Effect]:
        if isinstance(message, TransferMessage):
            self.heard[message.transfer] = self._invariants.now
        return super().receive(sender, message, payload, now)

    def finish_step(self, result: StepResult, now: float) -> list[Effect]:
        assert self._running.step is not None, "a step finished that was not started"
        chunks = [
            chunk if chunk.token is None else _drawn(share.request, chunk)
            for share, chunk in zip(self._running.step.shares, result.chunks, strict=True)
        ]
        return super().finish_step(StepResult(chunks, result.elapsed_s), now)

    def loaded(self, service: Service, now: float) -> list[Effect]:
        self.num_loaded += 1
        return super().loaded(service, now)

    def _finish_event(self, outcomes: Sequence[EngineOutcome], now: float) -> list[Effect]:
        self._invariants.touch(self)
        effects = super()._finish_event(outcomes, now)
        self.num_dropped += sum(isinstance(effect, DropModel) for effect in effects)
        return effects


class WatchedTimelines(Timelines):
    """Timelines that read what clients get."""

    def __init__(self, invariants: Invariants, readers: TimelineReaders) -> None:
        super().__init__(readers)
        self._invariants = invariants

    def arrived(
        self, spec: RequestSpec, now: float, tenant: str = "", trace: RequestTrace | None = None
    ) -> RequestTimeline:
        timeline = super().arrived(spec, now, tenant, trace)
        self._invariants.arrived(spec)
        return timeline

    def decided(self, timeline: RequestTimeline, attempt: int, policy: str, decision: Decision, seen: Seen) -> None:
        if isinstance(decision, Dispatch):
            self._invariants.dispatched(timeline.id, attempt)
        super().decided(timeline, attempt, policy, decision, seen)

    def delivered(self, timeline: RequestTimeline, batch: TokenBatch, engine: str, now: float) -> None:
        self._invariants.delivered(timeline.id, batch)
        super().delivered(timeline, batch, engine, now)

    def left(self, timeline: RequestTimeline, outcome: Outcome, reason: str, now: float) -> None:
        self._invariants.ended(timeline.id, outcome)
        super().left(timeline, outcome, reason, now)


def _drawn(request: EngineRequest, chunk: ChunkResult) -> ChunkResult:
    first = request.num_generated
    token, *others = [TracedToken(first + place, *request.epoch).token for place in range(1 + len(chunk.further))]
    return ChunkResult(token, chunk.logprobs, further=[ChunkResult(other) for other in others])


def _disown(owners: dict[Key, WatchedCore], key: Key, core: WatchedCore) -> None:
    if owners.get(key) is core:
        del owners[key]
