"""The engine's core: requests, transfers and iterations as events in, effects out. No sockets, threads or tensors.

Theory of operation. The shell feeds it what happens, with the time: a message, a finished step, a finished copy, the
death of a peer, a deadline. The shell carries out what comes back: messages to send, blocks to export or import. When
no step is running it asks `next_batch` for one, computes it, and brings the result to `finish_step`.

A request comes by `Submit` and is accepted or refused. If it has a decode engine, blocks are reserved there. It waits,
then it runs: its prompt is computed chunk by chunk, up to the first token. After that it decodes here, or it is handed
over. However it ends, its blocks are free once no step and no transfer touches them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from engines.adapters.room import AdapterRoom
from engines.admission.acceptance import Admission, Refusal
from engines.admission.intake import Intake
from engines.costs.pace import Pace
from engines.costs.step_cost import StepLoad
from engines.effects import Copied, Effect
from engines.engine_request import EngineRequest
from engines.filling.filling import Filling
from engines.memory.pages import PagePool
from engines.memory.residency import Residency
from engines.requests import OwnedRequests
from engines.scheduling.backlog import Backlog
from engines.scheduling.batch import Batch, StepResult
from engines.scheduling.disciplines.registry import make_discipline
from engines.scheduling.disciplines.static import StaticBatches
from engines.scheduling.iterations import Iterations
from engines.scheduling.running_step import RunningStep
from engines.scheduling.service import Service, min_or_none
from engines.scheduling.slicing import Slicing
from engines.scheduling.step import Step
from engines.settings import EngineSettings
from engines.standing.orders import EngineOrders
from engines.standing.standing import Standing
from engines.status import StatusWriter
from engines.tiers.tiering import Tiering
from engines.transfers.handover import Handovers
from engines.transfers.moves import Moves
from engines.transfers.outcomes import EngineOutcome
from engines.transfers.peers import Peers
from engines.transfers.room import Room
from engines.transfers.unloading import Unloading
from kvtransfer.protocol import Buffer, Exported, Imported, Send
from kvtransfer.tiers.tier import BlocksLoaded, BlocksStored
from mesh.wire.adapters import ExpectAdapter, ForgetAdapter
from mesh.wire.control import (
    Announce,
    Drain,
    LoadService,
    Migrate,
    ProcessState,
    Role,
    SetRole,
    StageService,
    UnloadService,
)
from mesh.wire.messages import EngineMessage
from mesh.wire.prefixes import TellPrefixes
from mesh.wire.requests import Cancel, FailureCode, Probe, Recall, RefusalCode, Submit, SubmitBatch
from mesh.wire.status import EngineStatus
from mesh.wire.transfers import Blocks, Commit, Committed, MemoryRef, Reserve, Reserved, Taken


class EngineCore:
    """Decides all about an engine's requests. ``can_open``: whether a peer's pool (process, reference) opens."""

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        can_open: Callable[[str, MemoryRef], bool],
    ) -> None:
        self._settings = settings
        self._standing = standing = Standing(settings.role, keeps_role=settings.scheduling.is_static)
        self.hang: str | None = None  # why the running step counts as one that hangs, as far as its node has seen
        pace = Pace()
        self.residency = residency = Residency(services, settings.limits, settings.loadable)
        services, schedulers = residency.services, residency.schedulers
        self._services = services
        usual = dict(settings.usual)
        self._discipline = discipline = make_discipline(
            settings.scheduling,
            services,
            settings.limits.max_running,
            lambda service, num_tokens: services[service].most_rows(num_tokens),
            starvation_s=settings.starvation_s,
            strict_phases=settings.strict_phases,
            usual=usual,
        )
        self._room = room = Room(settings, standing, residency)
        self._adapters = adapters = AdapterRoom(settings.adapter_memory_bytes)
        self._handovers = handovers = Handovers(settings, services, can_open, room.freeness, adapters)
        self._backlog = backlog = Backlog(services, schedulers, handovers.departures)
        self.tiering = tiering = Tiering(settings, services, discipline, standing, handovers)
        self._status_writer = StatusWriter(
            settings, standing, residency, discipline, backlog, handovers, room, pace, adapters, tiering
        )
        peers = Peers(settings.transfer_limits.headroom_blocks)
        slicing = Slicing(settings, services, schedulers, discipline, handovers.departures, peers, standing, pace)
        is_static, pads = settings.scheduling.is_static, isinstance(discipline, StaticBatches) and discipline.pads
        max_running = settings.limits.max_running
        self._running = RunningStep(
            services, discipline, pace, settings.deliver_every, max_running, is_static=is_static, pads=pads
        )
        admission = Admission(services, backlog, settings.max_waiting)
        intake = Intake(settings, services, admission, standing, self._running, adapters)
        self._owned = owned = OwnedRequests(
            services, standing, discipline, self._running, slicing, handovers, peers, adapters, tiering, intake
        )
        self._requests, self._slicing = owned.by_id, slicing
        self._iterations = Iterations(
            services,
            schedulers,
            discipline,
            slicing,
            handovers,
            standing,
            pace,
            settings.deliver_every,
            self._running,
            owned,
            Filling(services, settings.limits, standing, is_static=is_static),
            tiering,
        )
        # what decides whether something here is to go to another engine
        self.moves: Final = Moves(settings, residency, backlog, handovers, owned, room, peers, self._running, standing)
        self._orders = EngineOrders(settings.id, standing, residency, adapters, self.moves, self._requests, usual)
        self._unloading = Unloading(
            residency, handovers, adapters, standing, self._running, self._iterations, owned, is_static=is_static
        )

    def __repr__(self) -> str:
        requests = f"{len(self._requests)} requests"
        return f"<EngineCore {self._settings.id} {self.role} {self.state} {requests} {self._handovers}>"

    @property
    def role(self) -> Role:
        return self._standing.role

    @property
    def state(self) -> ProcessState:
        return self._standing.state

    @property
    def has_news(self) -> bool:
        """Return whether others should get a `status` now: see `Standing`."""
        return self._standing.has_news

    @property
    def is_idle(self) -> bool:
        """Nothing is owned, promised or being moved."""
        is_still = self._running.step is None and self._slicing.is_idle
        return not self._requests and is_still and self._handovers.is_idle

    # --- events -------------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: EngineMessage, payload: Sequence[Buffer], now: float) -> list[Effect]:
        """A message from the process ``sender``."""
        return self._finish_event(self._deliver(sender, message, payload, now), now)

    def _deliver(
        self, sender: str, message: EngineMessage, payload: Sequence[Buffer], now: float
    ) -> Sequence[EngineOutcome]:
        outcomes: Sequence[EngineOutcome]
        match message:
            case Reserved() | Blocks() | Taken() | Commit() | Committed():  # first, as most messages are
                outcomes = self._handovers.receive(sender, message, payload, now)
            case Submit() | SubmitBatch():
                outcomes = self._owned.take(sender, message, now)
            case Cancel():
                outcomes = self._owned.cancel(message, now)
            case Recall():
                outcomes = self.moves.give_back_unbegun(message, now)
            case Probe():
                outcomes = self._owned.answer(sender, message, self._backlog)
            case Migrate():
                outcomes = self.moves.migrate(message, now)
            case TellPrefixes():
                outcomes = self.tiering.held.subscribe(sender)
            case SetRole() | Drain() | Announce() | ExpectAdapter() | ForgetAdapter():
                outcomes = self._orders.obey(message)
            case LoadService() | StageService() | UnloadService():
                outcomes = self._orders.obey(message)
            case Reserve(is_pull=False) if (refusal := self._why_declined()) is not None:
                outcomes = self._handovers.arrivals.decline(sender, message, *refusal)
            case _:
                outcomes = self._handovers.receive(sender, message, payload, now)
        return outcomes

    def _why_declined(self) -> Refusal | None:
        if self._settings.scheduling.is_static:
            return RefusalCode.NO_MEMORY, "it runs static batches, which nobody joins"
        if self.state is not ProcessState.READY:
            return RefusalCode.DRAINING, "draining"
        return None if self.hang is None else (RefusalCode.FULL, self.hang)

    def exported(self, transfer: str, event: Exported, now: float) -> list[Effect]:
        return self._finish_event(self._handovers.exported(transfer, event, now), now)

    def imported(self, transfer: str, event: Imported, now: float) -> list[Effect]:
        return self._finish_event(self._handovers.imported(transfer, event, now), now)

    def offloaded(self, copied: Copied, now: float) -> list[Effect]:
        """Note that `OffloadBlocks` is done."""
        return self._finish_event(self._owned.offloaded(copied), now)

    def restored(self, copied: Copied, now: float) -> list[Effect]:
        """Note that `RestoreBlocks` is done."""
        return self._finish_event(self._owned.restored(copied), now)

    def stored(self, result: BlocksStored, now: float) -> list[Effect]:
        """Note that `StoreBlocks` is done."""
        self.tiering.stored(result)
        return self._finish_event((), now)

    def blocks_loaded(self, ticket: int, result: BlocksLoaded, now: float) -> list[Effect]:
        """Note that `LoadBlocks` is done."""
        return self._finish_event(self.tiering.loaded(ticket, result, now), now)

    def loaded(self, service: Service, now: float) -> list[Effect]:
        """Take what the effect `LoadModel` asked for."""
        self.residency.loaded(service)
        self._standing.has_news = True
        return self._finish_event((), now)

    def not_loaded(self, service: str, reason: str, now: float) -> list[Effect]:
        """It cannot be had."""
        self.residency.not_loaded(service, reason)
        self._standing.has_news = True
        return self._finish_event((), now)

    def staged(self, service: str, num_bytes: int, now: float) -> list[Effect]:
        """Note that `StageModel` is done. ``num_bytes``: that the weights will take once they are loaded."""
        self._standing.has_news = True
        return self._finish_event(self.residency.has_staged(service, num_bytes), now)

    def not_staged(self, service: str, reason: str, now: float) -> list[Effect]:
        """It cannot be had, or there is no room for it."""
        self._standing.has_news = True
        self.residency.not_staged(service, reason)
        return self._finish_event((), now)

    def adapter_loaded(self, key: str, now: float) -> list[Effect]:
        """Note that `LoadAdapter` is done."""
        self._owned.adapter_came(self._adapters.loaded(key))
        return self._finish_event((), now)

    def adapter_not_loaded(self, key: str, reason: str, now: float) -> list[Effect]:
        """It cannot be had: whoever waited for it fails."""
        effects: list[Effect] = []
        for request in self._adapters.not_loaded(key, reason, now):
            effects += self._owned.give_up(request, reason, FailureCode.ADAPTER, now)
        return self._finish_event(effects, now)

    def lose_peer(self, process: str, now: float) -> list[Effect]:
        """A gateway or engine died: its requests end here, transfers with it fail. A gateway may live: it is told."""
        given_back = self._owned.lose_gateway(process, now)
        self.moves.lose_peer(process)
        return self._finish_event([*given_back, *self._handovers.lose_peer(process, now)], now)

    def expire(self, now: float) -> list[Effect]:
        """Call when `next_deadline` has come."""
        return self._finish_event([*self._handovers.expire(now), *self.tiering.expire(now)], now)

    def news(self, now: float) -> list[Send]:
        """What gateways are told beside the next status."""
        return [*self.tiering.held.news(), *self._owned.remind(self._backlog, now)]

    def next_deadline(self) -> float | None:
        transfers, loads = self._handovers.next_deadline(), self.tiering.next_deadline()
        if self.moves.must_leave():
            return min_or_none([transfers, loads, self.moves.next_retry(), self._unloading.next_deadline()])
        return transfers if loads is None else min_or_none([transfers, loads])

    def observe(self, process: str, status: EngineStatus, now: float) -> bool:
        """Take another engine's status. Return whether to call `look` now."""
        return self.moves.observe(process, status, now)

    def look(self, now: float) -> list[Effect]:
        """Look for requests that had better run elsewhere."""
        return self._finish_event((), now)

    def drain(self, now: float) -> list[Effect]:
        """Take nothing new; what is here moves to other engines if it may and there are any, else it ends here."""
        self._orders.stop()
        return self._finish_event((), now)

    def _finish_event(self, outcomes: Sequence[EngineOutcome], now: float) -> list[Effect]:
        """Draw the consequences of what an event came to, and of how things are after it."""
        effects = self._owned.resolve(outcomes, now) if outcomes else list[Effect]()
        for service in self._services.values():
            if service.queue.unreserved:
                effects += self._owned.resolve(self._reserve_ahead(service, now), now)
        if self.moves.must_leave():
            effects += self._owned.resolve(self._unloading.pause(now), now)
            effects += self._owned.resolve(self.moves.empty(self.role, now), now)
            effects += self._owned.resolve(self._unloading.drop(), now)
        elif self.moves.has_rules:
            effects += self._owned.resolve(self.moves.give_away(self.role, now), now)
        effects += self.tiering.next_store(now, is_idle=not self._requests)
        return effects if self._adapters.is_empty else [*effects, *self._adapters.next_orders()]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _reserve_ahead(self, service: Service, now: float) -> list[EngineOutcome]:
        """Ask decode engines for blocks early enough that prefills need not wait for them, and not much earlier. What
        goes before those that have blocks need not wait until one of them is computed.
        """
        queue, departures, outcomes = service.queue, self._handovers.departures, list[EngineOutcome]()
        most_urgent, rank = self.residency.schedulers[service.name].most_urgent, self._discipline.rank(now)
        while queue.unreserved:
            request = most_urgent(queue.unreserved, now, rank)

            def is_passed(other: EngineRequest, request: EngineRequest = request) -> bool:
                return most_urgent([other, request], now, rank) is request

            if not departures.may_reserve(service.name, is_passed):
                break
            queue.unreserved.remove(request)
            ahead_s = self._backlog.ahead_s(service, request, self._running.step, now)
            outcomes += departures.reserve(service, request, ahead_s, now)
        return outcomes

    # --- iterations ---------------------------------------------------------------------------------------------------

    def next_batch(self, now: float) -> tuple[Batch | None, list[Effect]]:
        """Return the same as `next_step`, in the form that an executor takes."""
        step, effects = self.next_step(now)
        return None if step is None else step.batch(), effects

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        """Return what to compute next; None if there is nothing. Bring the result to `finish_step` before
        asking again.
        """
        step, outcomes = self._iterations.next_step(now)
        return step, self._finish_event(outcomes, now)

    def finish_step(self, result: StepResult, now: float) -> list[Effect]:
        """The step that `next_step` gave is computed."""
        return self._finish_event(self._iterations.finish(result, now), now)

    def fail_step(self, reason: str, now: float) -> list[Effect]:
        """It could not be computed."""
        return self._finish_event(self._iterations.fail(reason, now), now)

    def num_steady_steps(self) -> int:
        """Return how many steps may be passed; see `RunningStep.num_steady_steps`."""
        return self._running.num_steady_steps()

    def load(self, step: Step) -> StepLoad:
        """Return what the running step computes."""
        return self._running.load(step)

    def steady_until(self) -> float:
        """Return until when the turn stays; see `RunningStep.steady_until`."""
        return self._running.steady_until()

    def num_steps_to_delivery(self) -> int:
        """Return the steps until a delivery; see `RunningStep.num_steps_to_delivery`."""
        return self._running.num_steps_to_delivery()

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        """Note that decode steps have passed; see `RunningStep.pass_steps`."""
        return self._running.pass_steps(num_steps, token, now)

    # --- what others may know -----------------------------------------------------------------------------------------

    def status(self, now: float) -> EngineStatus:
        """A fresh account, numbered."""
        return self._status_writer.status(self._requests.values(), self._running.step, now)

    def check_invariants(self) -> None:
        """Raise AssertionError unless every held block is accounted for."""
        self._running.settle()
        checked: set[PagePool] = set()  # all services have the same, which takes as long as all pools
        for service in self._services.values():
            service.pool.check_invariants(with_pages=service.pool.pages not in checked)
            checked.add(service.pool.pages)
            service.queue.check_invariants(self._requests)
        self._slicing.check_invariants()
        self.tiering.check_invariants()
        self._adapters.check_invariants()
        queues = [service.queue for service in self._services.values()]
        self._discipline.check_invariants([request for queue in queues for request in queue.ranked])
        if self.is_idle:
            leaked = {name: service.pool for name, service in self._services.items() if service.pool.num_held}
            assert not leaked, f"blocks are held though nothing is here: {leaked}"
