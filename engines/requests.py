"""The requests that an engine owns, and what becomes of them: they come, end, move, or go back to their gateways.

Transfers and iterations say what happened (`engines.transfers.outcomes`). Here it is decided what that means for the
request: who is told, where it stands next, and when its blocks are free.
"""

from collections.abc import Callable, Iterable, Mapping

from engines.adapters.room import AdapterRoom
from engines.admission.intake import Intake
from engines.effects import Copied, Effect
from engines.engine_request import EngineRequest
from engines.scheduling.backlog import Backlog
from engines.scheduling.disciplines.discipline import Discipline
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.running_step import RunningStep
from engines.scheduling.service import Service
from engines.scheduling.slicing import Slicing
from engines.standing.standing import Standing
from engines.tiers.tiering import Tiering
from engines.transfers.final_statuses import FinalStatuses
from engines.transfers.handover import Handovers
from engines.transfers.outcomes import (
    Admitted,
    Arrived,
    EngineOutcome,
    HandedOver,
    Migrated,
    NotHandedOver,
    NotMigrated,
    Pulled,
    Unpinned,
)
from engines.transfers.peers import Peers
from kvtransfer.protocol import Send
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
    ProbeQuestion,
    RefusalCode,
    Refused,
    StepTokens,
    Submit,
    SubmitBatch,
)

MOST_ENDED = 1024  # requests that are remembered after their end
NO_EPOCH = Epoch(-1)
REMIND_S = 5.0  # between two reminders of what waits here


class OwnedRequests:
    """A request is owned from its acceptance, or from its arrival with blocks, until its end."""

    def __init__(
        self,
        services: Mapping[str, Service],
        standing: Standing,
        discipline: Discipline,
        running: RunningStep,
        slicing: Slicing,
        handovers: Handovers,
        peers: Peers,
        adapters: AdapterRoom,
        tiering: Tiering,
        intake: Intake,
    ) -> None:
        self.by_id: dict[str, EngineRequest] = {}
        self._reminds_at = 0.0
        self._services = services
        self._standing = standing
        self._discipline = discipline
        self._running = running
        self._slicing = slicing
        self._handovers = handovers
        self._peers = peers
        self._adapters = adapters
        self._tiering = tiering
        self._intake = intake
        self._num_batches = 0  # that came as such
        self._final_statuses = FinalStatuses()
        self._ended: dict[str, Epoch] = {}  # of the last ones that were, lest a message sent twice brings them back

    def __repr__(self) -> str:
        return f"<OwnedRequests {len(self.by_id)}>"

    def settle(self) -> None:
        """Let the tokens of all requests be there: see `RunningStep.settle`."""
        self._running.settle()

    # --- requests come ------------------------------------------------------------------------------------------------

    def take(self, gateway: str, message: Submit | SubmitBatch, now: float) -> list[Effect]:
        """Take in the requests of a message. One that is here under an earlier epoch ends; what was sent twice is
        ignored.
        """
        submits, batch = ((message,), 0) if isinstance(message, Submit) else (message.submits, self._num_batches + 1)
        self._num_batches = max(self._num_batches, batch)
        effects: list[Effect] = []
        for submit in submits:
            if submit.epoch <= self._newest_epoch(submit.spec.id):
                continue
            if (former := self.by_id.get(submit.spec.id)) is not None:
                effects += self.end(former, now)
            judged = self._intake.judge(submit, batch, now)
            if isinstance(judged, EngineRequest):
                self._add(judged)
                effects.append(Send(gateway, Accepted(judged.id, judged.epoch, self._standing.seq + 1)))
            else:
                effects.append(Send(gateway, judged))
        return effects

    def _newest_epoch(self, request: str) -> Epoch:
        """Under which the request is here, or was when it ended."""
        owned = self.by_id.get(request)
        return self._ended.get(request, NO_EPOCH) if owned is None else owned.epoch

    def _add(self, request: EngineRequest) -> None:
        service = self._services[request.spec.service]
        self.by_id[request.id] = request
        self._standing.has_news = True
        if request.decode_engine is None:
            self._may_begin(service, request)
        else:
            service.queue.unreserved.append(request)
            self._adapters.expect(request.spec, service.adapter_sizes)

    def _may_begin(self, service: Service, request: EngineRequest) -> None:
        if self._adapters.begin(request, service.adapter_sizes):
            self._wait(service.queue, request)
        else:
            service.queue.without_adapter.append(request)

    def _wait(self, queue: ServiceQueue, request: EngineRequest) -> None:
        if request.is_filler:
            queue.fillers.waiting.append(request)
        else:
            queue.waiting.append(request)
            self._discipline.came(request)

    def adapter_came(self, requests: Iterable[EngineRequest]) -> None:
        """Queue the requests that waited for an adapter."""
        for request in requests:
            queue = self._services[request.spec.service].queue
            queue.without_adapter.remove(request)
            self._wait(queue, request)

    def adopt(self, service: Service, request: EngineRequest, now: float) -> list[Effect]:
        """Adopt a request that another engine handed over, with blocks."""
        known, effects = self.by_id.get(request.id), list[Effect]()
        if known is not None and known.epoch > request.epoch:
            request.release_blocks(service.pool)  # the gateway gave up the attempt that comes here so late
            return []
        if known is not None:
            effects = self.end(known, now)  # an earlier owner's: only one may go on
        self.by_id[request.id] = request
        self._standing.has_news = True
        if not self._adapters.begin(request, service.adapter_sizes):
            request.release_blocks(service.pool)  # to compute them again is cheaper than to keep them for long
            service.queue.without_adapter.append(request)
            return effects
        missing = max(0, service.pool.blocks_for(len(request.tokens)) - len(request.blocks))
        if request.is_decoding or service.queue.can_have(missing):
            request.blocks += service.pool.allocate(0 if request.is_decoding else missing)
            self._slicing.begin(service, request)
            service.queue.running.append(request)
        else:
            request.release_blocks(service.pool)
            service.queue.waiting.append(request)
        self._discipline.came(request)
        return effects

    # --- what transfers and steps come to -----------------------------------------------------------------------------

    def resolve(self, outcomes: Iterable[EngineOutcome], now: float) -> list[Effect]:
        """Draw the consequences for the requests; effects stay in their order."""
        effects: list[Effect] = []
        for outcome in outcomes:
            match outcome:
                case Arrived(service, request):
                    effects += self.adopt(service, request, now)
                case Admitted(service, request):
                    self._may_begin(service, request)
                case HandedOver(request):
                    effects += self.end(request, now)
                case NotHandedOver(request, code, reason):
                    effects += [] if request.is_over else self.give_back(request, code, reason, now)
                case Migrated(request, to, epoch):
                    effects += self._migrated(request, to, epoch, now)
                case NotMigrated(request, to):
                    self._stay(request, to, now)
                case Unpinned(request):
                    self.release(request)
                case Pulled():
                    self._tiering.pulled(outcome, now)
                case _:
                    effects.append(outcome)
        return effects

    def _migrated(self, request: EngineRequest, to: str, epoch: Epoch, now: float) -> list[Effect]:
        """Tell the gateway where the request is: that engine may die before it sends its first token."""
        if request.is_over:
            return []
        return [Send(request.spec.gateway, Moved(request.id, epoch, to)), *self.end(request, now)]

    def _stay(self, request: EngineRequest, to: str, now: float) -> None:
        """Let the request go on here; nothing migrates to that engine for a moment."""
        self._standing.has_news = True
        self._peers.avoid(to, now)
        service = self._services[request.spec.service]
        if not request.is_over and request not in service.queue.running:
            self._slicing.begin(service, request)
            service.queue.running.append(request)
            self._discipline.came(request)

    # --- requests go --------------------------------------------------------------------------------------------------

    def end(self, request: EngineRequest, now: float) -> list[Effect]:
        """End the request here, for whatever reason."""
        if request.is_over:
            return []
        self._running.settle()
        request.is_over = self._standing.has_news = True
        if not request.is_filler:
            self._discipline.ended(request)
        self._ended[request.id] = request.epoch
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        service = self._services[request.spec.service]
        if request.finish is not None:
            self._final_statuses.remember(request)
            service.ended(request, now)
        service.queue.remove(request)
        if self.by_id.get(request.id) is request:
            del self.by_id[request.id]
        outcomes: list[EngineOutcome] = []
        if request.transfer is not None:
            outcomes += self._handovers.departures.cancel(request.transfer, "request ended", now)
        outcomes += [*self._slicing.ended(request), *self._tiering.ended(request, now)]
        self.release(request)
        return self.resolve(outcomes, now) if outcomes else []

    def cancel(self, message: Cancel, now: float) -> list[EngineOutcome]:
        """End what is here, or on its way here, of a request under that epoch or an earlier one."""
        request = self.by_id.get(message.request)
        outcomes: list[EngineOutcome] = []
        if request is not None and request.epoch <= message.epoch:
            self._standing.num_cancelled += 1
            outcomes += self.end(request, now)
        return outcomes + self._handovers.arrivals.cancel(message.request, message.epoch, now)

    def give_back(self, request: EngineRequest, code: RefusalCode, reason: str, now: float) -> list[Effect]:
        """End the request here, so that its gateway dispatches it anew."""
        refused = Refused(request.id, request.epoch, code, reason)
        return [Send(request.spec.gateway, refused), *self.end(request, now)]

    def give_up(self, request: EngineRequest, reason: str, code: FailureCode, now: float) -> list[Effect]:
        """Let the request fail, and tell its gateway why."""
        return [Send(request.spec.gateway, Failed(request.id, request.epoch, reason, code)), *self.end(request, now)]

    def release(self, request: EngineRequest) -> None:
        """Free the blocks of a request that is over, unless the running step or a copy still touches them."""
        service = self._services[request.spec.service]
        is_touched = request in service.queue.pinned or self._slicing.copies(request)
        if request.is_over and not is_touched and not self._running.computes(request):
            request.release_blocks(service.pool)
            self._adapters.ended(request)

    def offloaded(self, copied: Copied) -> list[EngineOutcome]:
        """Note that `OffloadBlocks` is done."""
        return self._after(copied, self._slicing.offloaded)

    def restored(self, copied: Copied) -> list[EngineOutcome]:
        """Note that `RestoreBlocks` is done."""
        return self._after(copied, self._slicing.restored)

    def _after(self, copied: Copied, note: Callable[[Copied], list[EngineOutcome]]) -> list[EngineOutcome]:
        """Release the request of a copy, if it ended while it was copied."""
        request = self._slicing.request_of(copied)
        outcomes = note(copied)
        self.release(request)
        return outcomes

    def lose_gateway(self, gateway: str, now: float) -> list[Effect]:
        """The gateway died, or may live: it gets its requests back."""
        effects: list[Effect] = []
        for request in [request for request in self.by_id.values() if request.spec.gateway == gateway]:
            effects += self.give_back(request, RefusalCode.GATEWAY_SILENT, "the gateway was silent", now)
        return effects

    # --- questions ----------------------------------------------------------------------------------------------------

    def owned_under(self, question: ProbeQuestion) -> EngineRequest | None:
        """The request that is asked for, if it is here under that attempt."""
        owned = self.by_id.get(question.request)
        return owned if owned is not None and owned.epoch.attempt == question.attempt else None

    def resend(self, question: ProbeQuestion) -> Delta | None:
        """Return what was sent of the request and did not reach its gateway; None: nothing that is known here."""
        owned = self.owned_under(question)
        return self._final_statuses.answer(question) if owned is None else owned.resend_from(question.next_offset)

    def answer(self, gateway: str, probe: Probe, backlog: Backlog) -> list[Effect]:
        """Send again what the gateway has not got, and tell which of its requests are here."""
        deltas, held, missing = list[Delta](), list[EngineRequest](), list[tuple[str, int]]()
        for question in probe.requests:
            owned, delta = self.owned_under(question), self.resend(question)
            if delta is not None:
                deltas.append(delta)
            elif owned is not None:
                held.append(owned)
            elif not self._handovers.arrivals.expects(question.request, question.attempt):
                missing.append((question.request, question.attempt))
        effects: list[Effect] = [Send(gateway, StepTokens(deltas))] if deltas else []
        effects += [Send(gateway, Held(backlog.places(held)))] if held else []
        return [*effects, Send(gateway, NotHeld(missing))] if missing else effects

    def remind(self, backlog: Backlog, now: float) -> list[Send]:
        """Tell gateways now and then which of their requests are here and not computed. What cancelled one may have
        been lost, and it would be here until its turn comes: the turn of its prompt, or that of its service's decodes.
        """
        if now < self._reminds_at:
            return []
        self._reminds_at = now + REMIND_S
        still: dict[str, list[EngineRequest]] = {}
        for request in self.by_id.values():
            if not self._running.computes(request):
                still.setdefault(request.spec.gateway, []).append(request)
        return [Send(gateway, Held(backlog.places(requests))) for gateway, requests in still.items()]
