"""The state machine of an engine process: events in (methods), effects out (`engines.effects`). No sockets or threads.

Theory of operation. The shell (`engines.process`, or `simulation.engines.engine` in virtual time) passes on whatever
happens: a message, a status, a finished step, copy or load, a wish that the engine ends, that time has passed. Each
event is answered with effects, which the shell carries out in their order. It calls `expire` at `next_deadline`, which
any event may change. It answers the effect `EndTurn` by a call of `end_turn`, once all that has come by then is passed
on. So one batch and one status follow from many messages.

What becomes of requests is the core's (`engines.core`). Which processes live and whom to hear, when to publish, which
steps hang or fail for good, and how the engine ends is decided here.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Final, TypeVar

import msgspec
import structlog

from engines.admission.rights import why_not
from engines.core import EngineCore
from engines.effects import (
    CloseMemory,
    Compute,
    Copied,
    Effect,
    EndTurn,
    Exit,
    LoadAdapter,
    Loading,
    LoadModel,
    NodeEffect,
    Recover,
    Refuse,
    StageModel,
)
from engines.scheduling.batch import StepResult
from engines.scheduling.service import Service
from engines.scheduling.step import Step
from engines.step_failures.errors import StepError, StepFailures
from engines.step_failures.stuck_steps import StepWatch
from engines.transfers.neighbours import Neighbourhood
from kvtransfer.protocol import Buffer, Exported, Imported, Send
from kvtransfer.tiers.tier import BlocksLoaded, BlocksStored
from mesh.addresses import gateway_names, supervisors
from mesh.effects import Follow, Forget, Publish, Rest
from mesh.membership.catching_up import CatchingUp
from mesh.membership.membership import Membership, Renewed, Restarted, Stale, ended_incarnations
from mesh.membership.status_pace import StatusPace
from mesh.topology.schema import Topology
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, EngineMessage
from mesh.wire.requests import Probe
from mesh.wire.status import EngineStatus, SupervisorStatus
from mesh.wire.transfers import Reserve

T = TypeVar("T")

MAX_LAG_S: Final = 0.1  # a deadline that is noticed later than this says more about this process than about its peers

NOBODY: Final = frozenset[str]()

log = structlog.get_logger(__name__)


class EngineNode:
    """One engine of ``topology``, the one that is called ``name``. ``lease_s``: infinite where nobody can die."""

    def __init__(self, core: EngineCore, topology: Topology, name: str, lease_s: float) -> None:
        self.core: Final = core
        self._name = name
        self._gateways = frozenset(gateway_names(topology))
        self._others = frozenset(spec.id for spec in topology.own_engines if spec.id != name)
        self._unfollowed = set(self._others)
        self._neighbourhood = Neighbourhood(topology, name)
        self._partners = NOBODY  # to which requests may go, as it was when somebody asked last
        self._supervisor_of = supervisors(topology)
        self._supervisors = frozenset(self._supervisor_of.values())
        self._timing = timing = topology.timing
        self._pace = StatusPace(timing.heartbeat_s, timing.status_gap_s)
        self._membership = Membership(lease_s)
        self._others_may_die = lease_s < inf
        self._catching_up = CatchingUp(MAX_LAG_S)
        self._watch = StepWatch(longest_gap_s=1.25 * timing.heartbeat_s)
        self._failures = StepFailures()
        self._step: Step | None = None  # that the shell computes
        self._error = self._first_line = ""  # of that step, which failed
        self._will_end_turn = False
        self._has_listener = False  # that has not heard a status yet
        self._core_due_at: float | None = None  # None: to be asked for again, as something may have changed it
        self._gives_up_at: float | None = None  # None: nobody asked it to end

    def __repr__(self) -> str:
        return f"<EngineNode {self._name} {self.core!r} {self._membership!r}>"

    @property
    def computes(self) -> bool:
        """Return whether a step runs."""
        return self._step is not None

    def reads(self, process: str) -> bool:
        """Return whether statuses of that process tell this engine more than that it lives."""
        return process in self._supervisors or process in self._look_at()

    # --- its own life -------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[NodeEffect]:
        """Note that the engine is ready: it hears gateways and supervisors, and says so."""
        self._pace.start(now)
        return [Follow(self._gateways | self._supervisors), *self._follow_if_needed(()), *self._publish(now)]

    def welcome(self, now: float) -> list[NodeEffect]:
        """Somebody began to listen: a status follows, as soon as the pace allows."""
        self._has_listener = True
        return self._end_turn_soon()

    def drain(self, now: float) -> list[NodeEffect]:
        """Take nothing new. `Rest` follows when all that is here has ended, after ``drain_s`` at most."""
        self._gives_up_at = now + self._timing.drain_s
        return self._after(self.core.drain(now))

    def end_turn(self, now: float) -> list[NodeEffect]:
        """All that has come by now was passed on: choose a step if none runs, and tell what is new if it is time."""
        self._will_end_turn = False
        effects = [] if self._step is not None else self._next_step(now)
        if (self.core.has_news or self._has_listener) and not self._pace.puts_off(now):
            effects += self._publish(now)
        return effects

    def status(self, now: float) -> EngineStatus:
        """The next status to publish. It says so if the running step hangs."""
        status, hang = self.core.status(now), self._look_for_hang(now)
        return status if hang is None else msgspec.structs.replace(status, state=ProcessState.STUCK, error=hang)

    def _look_for_hang(self, now: float) -> str | None:
        """Return why the running step counts as one that hangs, and let the core know."""
        hang = self._watch.look(now)
        if (hang is None) != (self.core.hang is None):
            log.warning("not stuck any more") if hang is None else log.error("stuck", reason=hang)
        self.core.hang = hang
        return hang

    def _publish(self, now: float) -> list[NodeEffect]:
        """Tell who listens how it stands, and gateways which prefixes came and went, and what waits."""
        self._has_listener = False
        self._pace.published(now)
        return [*self.core.news(now), Publish()]

    # --- the mesh -----------------------------------------------------------------------------------------------------

    def offer(self, services: Collection[str]) -> None:
        """The deployment has these services, which may be loaded."""
        self.core.residency.offer(services)

    def receive(
        self, sender: Sender, message: EngineMessage, payload: Sequence[Buffer], now: float
    ) -> list[NodeEffect]:
        """A message to this engine."""
        if (reason := why_not(sender.process, message, self._gateways)) is not None:
            return [Refuse(sender, message, reason)]
        effects = self._follow([sender.process]) if sender.process in self._unfollowed else list[NodeEffect]()
        if (
            sender.process in self._gateways or sender.process in self._others
        ):  # else it is a command, which has no lease to keep
            observed = self._observe(sender, now)
            if observed is None:
                return effects
            effects += observed
        if isinstance(message, Reserve):  # one of its gateway, which could die before it was ever heard here
            self._membership.expect(message.spec.gateway, now)
            self._look_for_hang(now)
        answers = self.core.receive(sender.process, message, payload, now)
        if answers or not isinstance(message, Probe):  # a question changes nothing that others should hear of
            effects += self._after(answers)
        return effects

    def hear(self, sender: Sender, status: BroadcastMessage | None, now: float) -> list[NodeEffect]:
        """The status of a process that is followed; None: a sign of life that says no more, or is not read."""
        if isinstance(status, SupervisorStatus):
            return self._declare_dead(sender.process, status, now)
        effects = self._observe(sender, now)
        if effects is None:
            return []
        if isinstance(status, EngineStatus) and sender.process in self._look_at():
            effects += self._observe_peer(sender.process, status, now)
        return effects

    def _observe_peer(self, process: str, status: EngineStatus, now: float) -> list[NodeEffect]:
        self._core_due_at = None
        moves = self.core.look(now) if self.core.observe(process, status, now) else []
        return self._after(moves) if moves else []  # else each status would make this engine publish its own

    def _observe(self, sender: Sender, now: float) -> list[NodeEffect] | None:
        """Take a sign of life; None: it is of an incarnation that is over."""
        observation, effects = self._membership.observe(sender, now), list[NodeEffect]()
        if isinstance(observation, Renewed):  # as nearly always
            return effects
        if isinstance(observation, Stale):
            return None
        if isinstance(observation, Restarted):
            effects += [Forget(sender.process), *self._lose(sender.process, now)]
        self.core.moves.find_peer(sender.process)
        return effects

    def _declare_dead(self, supervisor: str, status: SupervisorStatus, now: float) -> list[NodeEffect]:
        """A supervisor saw processes end: nobody waits for their leases."""
        effects: list[NodeEffect] = []
        for ended in ended_incarnations(supervisor, status, self._supervisor_of):
            if lost := self._membership.declare_dead(ended):
                effects += [Forget(lost.sender.process), *self._lose(lost.sender.process, now)]
        return effects

    def _lose(self, process: str, now: float) -> list[NodeEffect]:
        log.warning("lost a peer", process=process)
        self.core.tiering.held.lose(process)
        return [CloseMemory(process), *self._after(self.core.lose_peer(process, now))]

    def _follow(self, processes: Iterable[str]) -> list[NodeEffect]:
        """Hear from now on the engines among them, which this one has to do with: they might die.

        Were each engine to hear all others, what the mesh sends would grow with the square of their number.
        """
        new = self._unfollowed.intersection(processes)
        if not new:
            return []
        self._unfollowed -= new
        return [Follow(frozenset(new))]

    def _follow_if_needed(self, effects: Sequence[Effect]) -> list[NodeEffect]:
        """Follow whoever is written to, and to whom requests may go."""
        partners = self._look_at()
        to = [effect.to for effect in effects if isinstance(effect, Send) and effect.to in self._unfollowed]
        return self._follow([*partners, *to]) if partners or to else []

    def _look_at(self) -> frozenset[str]:
        """Return the engines to which requests may go: all that there are if they must go, else neighbours by rules."""
        moves, partners = self.core.moves, NOBODY
        if moves.must_leave():
            partners = self._others
        elif moves.has_rules:
            partners = self._neighbourhood.of(moves.services)
        if partners is not self._partners:
            for engine in self._partners - partners:
                moves.lose_peer(engine)  # what it said last grows old
            self._partners = partners
        return partners

    # --- steps --------------------------------------------------------------------------------------------------------

    def finish_step(self, result: StepResult, now: float) -> list[NodeEffect]:
        """The step of the last `Compute` was computed."""
        self._failures.computed()
        return self._go_on(self.core.finish_step, result, now)

    def fail_step(self, kind: StepError, error: str, first_line: str) -> list[NodeEffect]:
        """The step could not be computed. A device that is lost computes nothing any more in this process."""
        self._error, self._first_line = error, first_line
        return self.not_recovered() if kind is StepError.DEVICE else [Recover(frees_memory=kind is StepError.MEMORY)]

    def recovered(self, now: float) -> list[NodeEffect]:
        """The device goes on after the step that failed. So do all requests but those that are to blame."""
        shares = () if self._step is None else self._step.shares
        if self._failures.failed([share.request.id for share in shares]):
            reason = f"steps of many requests failed, and none was computed; the last: {self._first_line}"
            return [Exit(reason)]
        return self._go_on(self.core.fail_step, f"the engine could not compute it: {self._error}", now)

    def not_recovered(self) -> list[NodeEffect]:
        """The device does not go on."""
        return [Exit(f"its device is lost: {self._first_line}")]

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        """Note that decode steps have passed; see `RunningStep.pass_steps`."""
        self._watch.repeat(now)
        return self.core.pass_steps(num_steps, token, now)

    def _go_on(self, end: Callable[[T, float], list[Effect]], how: T, now: float) -> list[NodeEffect]:
        """Let the step end, and choose the next one at once: the executor is not to wait."""
        self._watch.end(now)
        effects = self._after(end(how, now))
        self._step = None
        return effects + self._next_step(now)

    def _next_step(self, now: float) -> list[NodeEffect]:
        step, before = self.core.next_step(now)
        self._core_due_at = None
        if step is None:
            return self._after(before) if before else []
        self._step = step
        self._watch.start(step.service.name, lambda: sum(step.service.step_cost().parts(step.load())), now)
        return [*self._after(before), Compute(step)]

    # --- copies and loads ---------------------------------------------------------------------------------------------

    def exported(self, transfer: str, event: Exported, now: float) -> list[NodeEffect]:
        """Note that `ExportBlocks` is done."""
        return self._after(self.core.exported(transfer, event, now))

    def imported(self, transfer: str, event: Imported, now: float) -> list[NodeEffect]:
        """Note that `ImportBlocks` is done."""
        return self._after(self.core.imported(transfer, event, now))

    def offloaded(self, copied: Copied, now: float) -> list[NodeEffect]:
        """Note that `OffloadBlocks` is done."""
        return self._after(self.core.offloaded(copied, now))

    def restored(self, copied: Copied, now: float) -> list[NodeEffect]:
        """Note that `RestoreBlocks` is done."""
        return self._after(self.core.restored(copied, now))

    def stored(self, result: BlocksStored, now: float) -> list[NodeEffect]:
        """Note that `StoreBlocks` is done."""
        return self._after(self.core.stored(result, now))

    def blocks_loaded(self, ticket: int, result: BlocksLoaded, now: float) -> list[NodeEffect]:
        """Note that `LoadBlocks` is done."""
        return self._after(self.core.blocks_loaded(ticket, result, now))

    def loaded(self, job: Loading, result: Service | int, now: float) -> list[NodeEffect]:
        """Note that the job is done. ``result``: the service that `LoadModel` asked for, else bytes that it takes."""
        if isinstance(result, Service):
            return self._after(self.core.loaded(result, now))
        if isinstance(job, LoadAdapter):
            return self._after(self.core.adapter_loaded(job.adapter.key, now))
        return self._after(self.core.staged(job.service, result, now))

    def not_loaded(self, job: Loading, reason: str, now: float) -> list[NodeEffect]:
        """Note that the job failed."""
        match job:
            case LoadModel(name):
                return self._after(self.core.not_loaded(name, reason, now))
            case StageModel(name):
                return self._after(self.core.not_staged(name, reason, now))
            case LoadAdapter(_, adapter):
                return self._after(self.core.adapter_not_loaded(adapter.key, reason, now))

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when to call `expire`; None: not before something else happens."""
        earliest = self._due_at()
        if self._catching_up.until is not None:
            earliest = self._catching_up.looks_at(earliest)
        if self._pace.due_at is not None and self._pace.due_at < earliest:
            earliest = self._pace.due_at
        if self._gives_up_at is not None and self._gives_up_at < earliest:
            earliest = self._gives_up_at
        return None if earliest == inf else earliest

    def _due_at(self) -> float:
        """When an answer, a lease or a transfer is over. It is asked for far more often than it changes."""
        if self._core_due_at is None:
            answer = self.core.next_deadline()
            self._core_due_at = inf if answer is None else answer
        lease = self._membership.next_deadline() if self._others_may_die else None
        return self._core_due_at if lease is None or self._core_due_at < lease else lease

    def expire(self, now: float) -> list[NodeEffect]:
        """Act on the time: a status is due, or leases and answers may have ended."""
        effects: list[NodeEffect] = []
        if self._pace.due_at is not None and now >= self._pace.due_at:
            effects += self._publish(now)
        due_at = self._due_at()
        if not self._catching_up.puts_off(due_at, now):
            effects += self._expire(now)
        if self._gives_up_at is not None and now >= self._gives_up_at:
            log.warning("draining took too long: dropped what was left", core=repr(self.core))
            self._gives_up_at = None
            effects.append(Rest())
        return effects

    def _expire(self, now: float) -> list[NodeEffect]:
        effects: list[NodeEffect] = []
        for lost in self._membership.expire(now):
            process = lost.sender.process
            if process not in self._gateways:  # one that only fell silent still wants its tokens
                effects.append(Forget(process))
            effects += self._lose(process, now)
        return effects + self._after(self.core.expire(now))

    # --- what follows from every event --------------------------------------------------------------------------------

    def _after(self, effects: Sequence[Effect]) -> list[NodeEffect]:
        """What the core wants done, and what follows from how it is now."""
        self._core_due_at = None
        told = self._follow_if_needed(effects) if self._unfollowed else list[NodeEffect]()
        told += effects
        if self._step is None or (self.core.has_news and not self._pace.is_put_off):
            told += self._end_turn_soon()
        if self._gives_up_at is not None and self.core.is_idle:
            self._gives_up_at = None
            told.append(Rest())
        return told

    def _end_turn_soon(self) -> list[NodeEffect]:
        if self._will_end_turn:
            return []
        self._will_end_turn = True
        return [EndTurn()]
