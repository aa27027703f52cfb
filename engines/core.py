"""The engine's mind: requests, transfers and iterations as events in, effects out. No sockets, threads or tensors.

Theory of operation. The shell feeds it what happens (a message, a finished step, a finished copy, the death of a peer,
a deadline) together with the time, and carries out what comes back: messages to send, blocks to export or import. When
no step is running it asks `next_batch` for one, computes it, and brings the result to `finish_step`.

A request's way: `Submit` -> accepted or refused -> (with a decode engine: reserve there) -> waiting -> running, its
prompt computed chunk by chunk -> first token -> either it goes on decoding here, or it is handed over. However it ends,
its blocks are free once no step and no transfer touches them.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog

from engines.admission.acceptance import Admission, Refusal
from engines.admission.validity import fault_of
from engines.costs.step_cost import StepLoad
from engines.effects import Copied, Effect
from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.scheduling.account import Account, Standing
from engines.scheduling.backlog import Backlog, Step
from engines.scheduling.batch import Batch, StepResult
from engines.scheduling.disciplines.registry import make_discipline
from engines.scheduling.iterations import Iterations
from engines.scheduling.pace import Pace
from engines.scheduling.slicing import Slicing
from engines.settings import EngineSettings
from engines.status import Service, min_or_none
from engines.transfers.final_statuses import LastWords
from engines.transfers.handover import Handovers
from engines.transfers.moves import Moves
from engines.transfers.peers import Peers
from kvtransfer.protocol import Buffer, Exported, Imported, Send
from mesh.wire.control import Announce, Drain, LoadService, Migrate, ProcessState, Role, SetRole, UnloadService
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Delta,
    Epoch,
    Failed,
    FailureCode,
    Held,
    Moved,
    NotHeld,
    Probe,
    Recall,
    RefusalCode,
    Refused,
    StepTokens,
    Submit,
    SubmitBatch,
)
from mesh.wire.status import EngineStatus
from mesh.wire.transfers import MemoryRef, Reserve

MOST_ENDED = 1024  # requests that are remembered after their end
NO_EPOCH = Epoch(-1)

log = structlog.get_logger()


class EngineCore:
    """``can_open`` tells whether a peer's pool (process, reference) can be mapped here. ``expect`` is told of gateways
    whose requests come from other engines: one that was never heard here could die unnoticed.
    """

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        can_open: Callable[[str, MemoryRef], bool],
        expect: Callable[[str, float], None] = lambda gateway, now: None,
    ) -> None:
        self._settings = settings
        self._expect = expect
        self._standing = Standing(settings.role)
        self._requests: dict[str, EngineRequest] = {}  # owned here, by id
        self._last_words = LastWords()
        self._ended: dict[str, Epoch] = {}  # of the last ones that were, lest a word said twice brings them back
        self._effects: list[Effect] = []
        self._is_stopping = False
        self._num_batches = 0  # that came as such
        pace = Pace()
        self._residency = Residency(services, settings.limits, settings.loadable)
        services, schedulers = self._residency.services, self._residency.schedulers
        self._services = services
        self._discipline = make_discipline(
            settings.scheduling,
            services,
            settings.limits.max_running,
            lambda service, num_tokens: services[service].most_rows(num_tokens),
            starvation_s=settings.starvation_s,
            strict_phases=settings.strict_phases,
            usual=settings.usual,
        )
        self._handovers = Handovers(settings, services, can_open, self)
        self._backlog = Backlog(services, schedulers, self._handovers.departures)
        self._admission = Admission(services, self._backlog, settings.max_waiting)
        self._account = Account(settings, self._standing, self._residency, self._backlog, self._handovers, pace)
        peers = Peers(settings.transfer_limits.headroom_blocks)
        self._slicing = Slicing(settings, services, schedulers, self._handovers.departures, peers, self._standing, pace)
        self._iterations = Iterations(
            services,
            schedulers,
            self._discipline,
            self._slicing,
            self._handovers,
            self._standing,
            pace,
            settings.deliver_every,
            self,
        )
        self._moves = Moves(
            settings,
            self._residency,
            self._backlog,
            self._handovers,
            self._iterations,
            self._account,
            peers,
            lambda: pace.seconds,
            self,
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
        """Whether others should get a `status` now: see `Standing`."""
        return self._standing.has_news

    @property
    def is_idle(self) -> bool:
        """Nothing is owned, promised or being moved."""
        is_still = self._iterations.step is None and self._slicing.is_idle
        return not self._requests and is_still and self._handovers.is_idle

    # --- events -------------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: EngineMessage, payload: Sequence[Buffer], now: float) -> list[Effect]:
        """A message from the process ``sender``."""
        match message:
            case Submit() | SubmitBatch():
                self._take_in(sender, message, now)
            case Cancel():
                self._cancel(message, now)
            case Recall():
                self._recall(message, now)
            case Probe():
                self._answer(sender, message)
            case SetRole():
                self._set_role(message)
            case Migrate():
                self._migrate(message, now)
            case Drain():
                self._drain_or_undo(message)
            case LoadService() | UnloadService():
                self._load_or_unload(message)
            case Announce():
                self._hear_plan(message)
            case Reserve() if (refusal := self._why_declined()) is not None:
                self._effects += self._handovers.arrivals.decline(sender, message, *refusal)
            case _:
                if isinstance(message, Reserve):
                    self._expect(message.spec.gateway, now)
                self._effects += self._handovers.receive(sender, message, payload, now)
        return self._finish_event(now)

    def _why_declined(self) -> Refusal | None:
        if self._settings.scheduling.is_static:
            return RefusalCode.NO_MEMORY, "it runs static batches, which nobody joins"
        return None if self.state is ProcessState.READY else (RefusalCode.DRAINING, "draining")

    def exported(self, transfer: str, event: Exported, now: float) -> list[Effect]:
        self._effects += self._handovers.departures.exported(transfer, event, now)
        return self._finish_event(now)

    def imported(self, transfer: str, event: Imported, now: float) -> list[Effect]:
        self._effects += self._handovers.arrivals.imported(transfer, event, now)
        return self._finish_event(now)

    def offloaded(self, copied: Copied, now: float) -> list[Effect]:
        """`OffloadBlocks` is done."""
        self._effects += self._slicing.offloaded(copied)
        return self._finish_event(now)

    def restored(self, copied: Copied, now: float) -> list[Effect]:
        """`RestoreBlocks` is done."""
        self._effects += self._slicing.restored(copied)
        return self._finish_event(now)

    def loaded(self, service: Service, now: float) -> list[Effect]:
        """What the effect `LoadService` asked for is here."""
        self._residency.loaded(service)
        self._standing.has_news = True
        return self._finish_event(now)

    def not_loaded(self, service: str, reason: str, now: float) -> list[Effect]:
        """It cannot be had."""
        self._residency.not_loaded(service, reason)
        self._standing.has_news = True
        return self._finish_event(now)

    def lose_peer(self, process: str, now: float) -> list[Effect]:
        """A gateway or engine died: its requests end here, transfers with it fail. A gateway may live: it is told."""
        for request in [request for request in self._requests.values() if request.spec.gateway == process]:
            self._effects += self.give_back(request, RefusalCode.GATEWAY_SILENT, "the gateway was silent", now)
        self._moves.lose_peer(process)
        self._effects += self._handovers.lose_peer(process, now)
        return self._finish_event(now)

    def expire(self, now: float) -> list[Effect]:
        """Call when `next_deadline` has come."""
        self._effects += self._handovers.expire(now)
        return self._finish_event(now)

    def next_deadline(self) -> float | None:
        deadline, retry = self._handovers.next_deadline(), self._moves.next_retry()
        return deadline if retry is None else min_or_none([deadline, retry])

    @property
    def looks_at_peers(self) -> bool:
        """Whether other engines' statuses matter: something here may go to one of them."""
        return self._moves.has_rules or self._moves.must_leave()

    def observe(self, process: str, status: EngineStatus, now: float) -> bool:
        """Another engine's status. Whether to call `look` now."""
        return self._moves.observe(process, status, now)

    def look(self, now: float) -> list[Effect]:
        """For requests that had better run elsewhere."""
        return self._finish_event(now)

    def drain(self, now: float) -> list[Effect]:
        """Take nothing new; what is here moves to other engines if there are any, else it ends here."""
        self._standing.state, self._standing.has_news = ProcessState.DRAINING, True
        self._is_stopping = self._moves.is_emptying = True
        return self._finish_event(now)

    def _drain_or_undo(self, message: Drain) -> None:
        if self._is_stopping:
            return
        self._moves.is_emptying = not message.undo
        self._standing.state = ProcessState.READY if message.undo else ProcessState.DRAINING
        self._standing.has_news = True
        log.info("serves again" if message.undo else "drains: its requests move away", engine=self._settings.id)

    def _load_or_unload(self, message: LoadService | UnloadService) -> None:
        if isinstance(message, LoadService):
            self._effects += self._residency.load(message.service)
        else:
            self._residency.unload(message.service)
        self._standing.has_news = True

    def _set_role(self, message: SetRole) -> None:
        """A matter of the next iterations: nothing is moved, flushed or loaded (Tropical)."""
        standing = self._standing
        if message.num_role_changes == standing.num_role_changes and message.role is not standing.role:
            log.info("role changed", engine=self._settings.id, was=standing.role, role=message.role)
            standing.role = message.role
            standing.num_role_changes += 1
            standing.has_news = True

    def _hear_plan(self, message: Announce) -> None:
        known = self._standing.place
        if known is None or known.number < message.place.number:
            self._standing.place = message.place

    def _finish_event(self, now: float) -> list[Effect]:
        for service in self._services.values():
            if service.queue.unreserved:
                self._reserve_ahead(service, now)
        if self._moves.must_leave():
            self._effects += self._moves.empty(self.role, now)
            self._drop()
        elif self._moves.has_rules:
            self._effects += self._moves.give_away(self.role, now)
        effects, self._effects = self._effects, []
        return effects

    def _drop(self) -> None:
        """Services that were to leave and are empty."""
        if dropped := self._residency.drop(self._is_empty):
            self._effects += dropped
            self._standing.has_news = True

    # --- requests come ------------------------------------------------------------------------------------------------

    def _submit(self, gateway: str, message: Submit, now: float, batch: int = 0) -> None:
        spec, epoch = message.spec, message.epoch
        known = self._requests.get(spec.id)
        if epoch <= (self._ended.get(spec.id, NO_EPOCH) if known is None else known.epoch):
            return  # said twice
        if known is not None:
            self._end(known, now)
        refusal = self._refusal(message, now)
        if refusal is not None:
            self._send(gateway, Refused(spec.id, epoch, *refusal))
            return
        service = self._services[spec.service]
        if (fault := fault_of(spec, service)) is not None:
            self._send(gateway, Failed(spec.id, epoch, fault, FailureCode.INVALID))
            return
        request = EngineRequest.of(spec, epoch, now, service.eos_token_ids, service.context_limit, service.ttft_s)
        request.prefill_mode, request.prefill_order = message.prefill, message.order
        request.slice_tokens, request.batch = message.slice_tokens, batch
        self._requests[spec.id] = request
        self._standing.has_news = True
        self._send(gateway, Accepted(spec.id, epoch, self._standing.seq + 1))
        if message.decode_engine is None or message.decode_engine == self._settings.id:
            self.may_begin(service, request)
        else:
            request.decode_engine = message.decode_engine
            service.queue.unreserved.append(request)

    def _take_in(self, gateway: str, message: Submit | SubmitBatch, now: float) -> None:
        if isinstance(message, Submit):
            self._submit(gateway, message, now)
            return
        self._num_batches += 1
        for submit in message.submits:
            self._submit(gateway, submit, now, self._num_batches)

    def _refusal(self, message: Submit, now: float) -> Refusal | None:
        if self.state is not ProcessState.READY:
            return RefusalCode.DRAINING, f"engine is {self.state}"
        return self._admission.refusal(message, self._iterations.step, now)

    def _reserve_ahead(self, service: Service, now: float) -> None:
        """Ask decode engines for blocks early enough that prefills need not wait for them, and not much earlier."""
        queue, departures = service.queue, self._handovers.departures
        while queue.unreserved and departures.may_reserve(service.name):
            most_urgent = self._residency.schedulers[service.name].most_urgent
            request = most_urgent(queue.unreserved, now, self._discipline.rank(now))
            queue.unreserved.remove(request)
            ahead_s = self._backlog.ahead_s(service, request, self._iterations.step, now)
            self._effects += departures.reserve(service, request, ahead_s, now)

    def may_begin(self, service: Service, request: EngineRequest) -> None:
        """Its prefill may: its blocks are kept wherever it is to decode."""
        service.queue.waiting.append(request)
        self._discipline.came(request)

    def adopt(self, service: Service, request: EngineRequest, now: float) -> None:
        """Another engine handed a request over, with blocks."""
        known = self._requests.get(request.id)
        if known is not None and known.epoch > request.epoch:
            request.release_blocks(service.pool)  # the gateway gave up the attempt that comes here so late
            return
        if known is not None:
            self._end(known, now)  # an earlier owner's: only one may go on
        self._requests[request.id] = request
        self._standing.has_news = True
        missing = max(0, service.pool.blocks_for(len(request.tokens)) - len(request.blocks))
        if request.is_decoding or service.pool.can_allocate(missing):
            request.blocks += service.pool.allocate(0 if request.is_decoding else missing)
            self._slicing.begin(service, request)
            service.queue.running.append(request)
        else:
            request.release_blocks(service.pool)
            service.queue.waiting.append(request)
        self._discipline.came(request)

    # --- requests go --------------------------------------------------------------------------------------------------

    def _cancel(self, message: Cancel, now: float) -> None:
        request = self._requests.get(message.request)
        if request is not None and request.epoch <= message.epoch:
            self._standing.num_cancelled += 1
            self._end(request, now)
        self._effects += self._handovers.arrivals.cancel(message.request, message.epoch, now)

    def _recall(self, message: Recall, now: float) -> None:
        request = self._requests.get(message.request)
        if request is None or request.epoch > message.epoch or request.num_generated:
            return
        if request in self._backlog.not_started(self._services[request.spec.service]):
            self._effects += self.give_back(request, RefusalCode.RECALLED, "another engine suits it better", now)

    def _answer(self, gateway: str, probe: Probe) -> None:
        deltas: list[Delta] = []
        held: list[EngineRequest] = []
        missing: list[tuple[str, int]] = []
        for question in probe.requests:
            owned = self._requests.get(question.request)
            if owned is not None and owned.epoch.attempt != question.attempt:
                owned = None
            said = self._last_words.answer(question) if owned is None else owned.say_again(question.next_offset)
            if said is not None:
                deltas.append(said)
            elif owned is not None:
                held.append(owned)
            elif not self._handovers.arrivals.expects(question.request, question.attempt):
                missing.append((question.request, question.attempt))
        if deltas:
            self._send(gateway, StepTokens(deltas))
        if held:
            self._send(gateway, Held(self._backlog.places(held)))
        if missing:
            self._send(gateway, NotHeld(missing))

    def _end(self, request: EngineRequest, now: float) -> None:
        self._effects += self.end(request, now)

    def end(self, request: EngineRequest, now: float) -> list[Effect]:
        """The request is over here, for whatever reason."""
        if request.is_over:
            return []
        self._iterations.settle()
        request.is_over = self._standing.has_news = True
        self._discipline.ended(request)
        self._ended[request.id] = request.epoch
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        service = self._services[request.spec.service]
        if request.finish is not None:
            self._last_words.remember(request)
            if request.spec.expected:
                service.early.ended(request, service.decode_step_s(), now)
        service.queue.remove(request)
        if self._requests.get(request.id) is request:
            del self._requests[request.id]
        effects: list[Effect] = []
        if request.transfer is not None:
            effects = self._handovers.departures.cancel(request.transfer, "request ended", now)
        effects += self._slicing.ended(request)
        self.release(request)
        return effects

    def give_back(self, request: EngineRequest, code: RefusalCode, reason: str, now: float) -> list[Effect]:
        """It is for its gateway to dispatch anew."""
        refused = Refused(request.id, request.epoch, code, reason)
        return [Send(request.spec.gateway, refused), *self.end(request, now)]

    def release(self, request: EngineRequest) -> None:
        """Free the blocks of a request that is over, unless the running step or a copy still touches them."""
        service = self._services[request.spec.service]
        is_touched = request in service.queue.pinned or self._slicing.copies(request)
        if request.is_over and not is_touched and not self._iterations.computes(request):
            request.release_blocks(service.pool)

    def handed_over(self, request: EngineRequest, now: float) -> None:
        """The decode engine owns it now."""
        self._end(request, now)

    def not_handed_over(self, request: EngineRequest, code: RefusalCode, reason: str, now: float) -> None:
        """The transfer failed: the gateway decides who goes on."""
        if not request.is_over:
            self._effects += self.give_back(request, code, reason, now)

    def migrated(self, request: EngineRequest, to: str, epoch: Epoch, now: float) -> None:
        """Another engine decodes it now. Its gateway is told: that engine may die before its first token is sent."""
        if not request.is_over:
            self._send(request.spec.gateway, Moved(request.id, epoch, to))
            self._end(request, now)

    def not_migrated(self, request: EngineRequest, to: str, now: float) -> None:
        """It goes on here as if nothing had happened."""
        self._standing.has_news = True
        self._moves.failed(to, now)
        queue = self._services[request.spec.service].queue
        if not request.is_over and request not in queue.running:
            self._slicing.begin(self._services[request.spec.service], request)
            queue.running.append(request)
            self._discipline.came(request)

    def unpinned(self, request: EngineRequest) -> None:
        """No transfer reads its blocks any more."""
        self.release(request)

    def _migrate(self, message: Migrate, now: float) -> None:
        effects = self._moves.migrate(message, self._requests.get(message.request), now)
        if effects is None:
            self._standing.has_news = True
        else:
            self._effects += effects

    def _is_empty(self, service: Service) -> bool:
        """Nobody holds or wants anything of it here."""
        queue, step = service.queue, self._iterations.step
        is_used = any((queue.waiting, queue.unreserved, queue.running, queue.pinned, queue.away, service.pool.is_used))
        return (
            not is_used and not self._handovers.concern(service.name) and (step is None or step.service is not service)
        )

    # --- iterations ---------------------------------------------------------------------------------------------------

    def next_batch(self, now: float) -> tuple[Batch | None, list[Effect]]:
        """As `next_step`, for an executor."""
        step, effects = self.next_step(now)
        return None if step is None else step.batch(), effects

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        """What to compute next; None if there is nothing. Bring the result to `finish_step` before asking again."""
        step, effects = self._iterations.next_step(now)
        self._effects += effects
        return step, self._finish_event(now)

    def finish_step(self, result: StepResult, now: float) -> list[Effect]:
        """The step that `next_step` gave is computed."""
        self._effects += self._iterations.finish(result, now)
        return self._finish_event(now)

    def fail_step(self, reason: str, now: float) -> list[Effect]:
        """It could not be computed."""
        self._effects += self._iterations.fail(reason, now)
        return self._finish_event(now)

    def num_steady_steps(self) -> int:
        """See `Iterations.num_steady_steps`."""
        return self._iterations.num_steady_steps()

    def load(self, step: Step) -> StepLoad:
        """What the running step computes."""
        return self._iterations.load(step)

    def steady_until(self) -> float:
        """See `Iterations.steady_until`."""
        return self._iterations.steady_until()

    def num_steps_to_delivery(self) -> int:
        """See `Iterations.num_steps_to_delivery`."""
        return self._iterations.num_steps_to_delivery()

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        """See `Iterations.pass_steps`."""
        return self._iterations.pass_steps(num_steps, token, now)

    # --- what others may know -----------------------------------------------------------------------------------------

    def status(self, now: float) -> EngineStatus:
        """A fresh account, numbered."""
        return self._account.status(self._requests.values(), self._iterations.step, now)

    def freeness(self, service: Service, now: float) -> float:
        """Of one service here: tokens of head room for each running request."""
        return self._account.freeness(service, now)

    def _send(self, to: str, message: Accepted | Refused | Failed | Moved | Held | NotHeld | StepTokens) -> None:
        self._effects.append(Send(to, message))

    def check_invariants(self) -> None:
        """Raise AssertionError unless every held block is accounted for."""
        self._iterations.settle()
        for service in self._services.values():
            service.pool.check_invariants()
            queue = service.queue
            places = [*queue.waiting, *queue.unreserved, *queue.running, *queue.away]
            assert len(set(places)) == len(places), "a request stands in two places"
            assert all(self._requests.get(request.id) is request for request in queue.running), (
                "an unowned request runs"
            )
            assert not any(request.blocks for request in (*queue.waiting, *queue.unreserved, *queue.offloaded)), (
                "a waiting request holds"
            )
            is_owned = [self._requests.get(request.id) is request for request in queue.offloaded]
            assert all(is_owned), "an unowned request is offloaded"
        self._slicing.check_invariants()
        queues = [service.queue for service in self._services.values()]
        self._discipline.check_invariants([request for queue in queues for request in (*queue.waiting, *queue.running)])
        if self.is_idle:
            leaked = {name: service.pool for name, service in self._services.items() if service.pool.num_held}
            assert not leaked, f"blocks are held though nothing is here: {leaked}"
