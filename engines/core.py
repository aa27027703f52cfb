"""The engine's mind: requests, transfers and iterations as events in, effects out. No sockets, threads or tensors.

Theory of operation. The shell feeds it what happens (a message, a finished step, a finished copy, the death of a peer,
a deadline) together with the time, and carries out what comes back: messages to send, blocks to export or import. When
no step is running it asks `next_batch` for one, computes it, and brings the result to `finish_step`.

A request's way: `Submit` -> accepted or refused -> (with a decode engine: reserve there) -> waiting -> running, its
prompt computed chunk by chunk -> first token -> either it goes on decoding here, or it is handed over. However it ends,
its blocks are free once no step and no transfer touches them.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from engines.backlog import Backlog, Step
from engines.batch import Batch, StepResult
from engines.forecast import EngineForecast
from engines.freeness import IDEAL_SLOWDOWN, free_tokens, freeness, headroom_tokens
from engines.handover import Handovers
from engines.pace import Pace
from engines.peers import Peers
from engines.rescheduling import Here, Rescheduler
from engines.scheduler import LocalScheduler, Plan, Share
from engines.sequence import Sequence as Request
from engines.settings import EngineSettings
from engines.status import Service, min_or_none
from engines.steady import num_steady_steps, pass_steps
from engines.step_cost import Load
from kvtransfer.protocol import Buffer, ExportBlocks, Exported, ImportBlocks, Imported, Send
from mesh.messages import (
    Accepted,
    Cancel,
    Delta,
    Drain,
    EngineMessage,
    EngineStatus,
    Epoch,
    Failed,
    FinishReason,
    MemoryRef,
    Migrate,
    Moved,
    NotHeld,
    Probe,
    ProcessState,
    RefusalCode,
    Refused,
    RequestSpec,
    Reserve,
    SetRole,
    StepTokens,
    Submit,
)

Effect = Send | ExportBlocks | ImportBlocks

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
        self.role = settings.role
        self.state = ProcessState.READY
        self._settings = settings
        self._expect = expect
        self._services = services
        self._rotation = list(services)  # the service whose turn is next comes first
        self._schedulers = {name: LocalScheduler(settings.limits, EngineForecast(name, services)) for name in services}
        self._requests: dict[str, Request] = {}  # owned here, by id
        self._ended: dict[str, Epoch] = {}  # of the last ones that were, lest a word said twice brings them back
        self._step: Step | None = None
        self._failed_parts: deque[tuple[Service, Sequence[Share]]] = deque()  # of batches, to be computed by themselves
        self._effects: list[Effect] = []
        self._seq = 0
        self._num_cancelled = 0
        self._num_preempted = 0
        self._num_role_changes = 0
        self._handovers = Handovers(settings, services, can_open, self)
        self._backlog = Backlog(services, self._schedulers, self._handovers)
        self._peers = Peers(settings.transfer_limits.headroom_blocks)
        here = Here(
            settings.id,
            services,
            self._movable,
            self._handovers.leaving,
            self.freeness,
            self._physical_freeness,
            self._pace_s,
        )
        self._rescheduler = Rescheduler(here, self._peers, settings.rescheduling)
        self._pace = Pace()
        self._is_stopping = False

    def __repr__(self) -> str:
        requests = f"{len(self._requests)} requests"
        return f"<EngineCore {self._settings.id} {self.role} {self.state} {requests} {self._handovers}>"

    @property
    def is_idle(self) -> bool:
        """Nothing is owned, promised or being moved."""
        return not self._requests and self._step is None and self._handovers.is_idle

    # --- events -------------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: EngineMessage, payload: Sequence[Buffer], now: float) -> list[Effect]:
        """A message from the process ``sender``."""
        match message:
            case Submit():
                self._submit(sender, message, now)
            case Cancel():
                self._cancel(message, now)
            case Probe():
                self._answer(sender, message)
            case SetRole():
                self._set_role(message)
            case Migrate():
                self._migrate(message, now)
            case Drain():
                self._drain_or_undo(message)
            case Reserve() if self.state is not ProcessState.READY:
                self._effects += self._handovers.decline(sender, message, RefusalCode.DRAINING, "draining")
            case _:
                if isinstance(message, Reserve):
                    self._expect(message.spec.gateway, now)
                self._effects += self._handovers.receive(sender, message, payload, now)
        return self._finish_event(now)

    def exported(self, transfer: str, event: Exported, now: float) -> list[Effect]:
        self._effects += self._handovers.exported(transfer, event, now)
        return self._finish_event(now)

    def imported(self, transfer: str, event: Imported, now: float) -> list[Effect]:
        self._effects += self._handovers.imported(transfer, event, now)
        return self._finish_event(now)

    def lose_peer(self, process: str, now: float) -> list[Effect]:
        """A gateway or engine died: its requests end here, transfers with it fail. A gateway may live: it is told."""
        for request in [request for request in self._requests.values() if request.spec.gateway == process]:
            code, reason = RefusalCode.GATEWAY_SILENT, "the gateway was silent"
            self._send(process, Refused(request.id, request.epoch, code, reason))
            self._end(request, now)
        self._peers.lose(process)
        self._effects += self._handovers.lose_peer(process, now)
        return self._finish_event(now)

    def expire(self, now: float) -> list[Effect]:
        """Call when `next_deadline` has come."""
        self._effects += self._handovers.expire(now)
        return self._finish_event(now)

    def next_deadline(self) -> float | None:
        is_emptying = self._rescheduler.is_emptying and any(map(self._movable, self._services.values()))
        retry = self._peers.next_retry() if is_emptying else None
        return min_or_none([self._handovers.next_deadline(), retry])

    def observe(self, process: str, status: EngineStatus, now: float) -> bool:
        """Another engine's status. Whether to call `look` now."""
        return self._rescheduler.observe(process, status, now)

    def look(self, now: float) -> list[Effect]:
        """For requests that had better run elsewhere."""
        return self._finish_event(now)

    def drain(self, now: float) -> list[Effect]:
        """Take nothing new; what is here moves to other engines if there are any, else it ends here."""
        self.state = ProcessState.DRAINING
        self._is_stopping = self._rescheduler.is_emptying = True
        return self._finish_event(now)

    def _drain_or_undo(self, message: Drain) -> None:
        if self._is_stopping:
            return
        self._rescheduler.is_emptying = not message.undo
        self.state = ProcessState.READY if message.undo else ProcessState.DRAINING
        log.info("serves again" if message.undo else "drains: its requests move away", engine=self._settings.id)

    def _set_role(self, message: SetRole) -> None:
        """A matter of the next iterations: nothing is moved, flushed or loaded (Tropical)."""
        if message.num_role_changes == self._num_role_changes and message.role is not self.role:
            log.info("role changed", engine=self._settings.id, was=self.role, role=message.role)
            self.role = message.role
            self._num_role_changes += 1

    def _finish_event(self, now: float) -> list[Effect]:
        for service in self._services.values():
            self._reserve_ahead(service, now)
        if self._rescheduler.is_emptying:
            self._send_back(now)
        self._give_away(now)
        effects, self._effects = self._effects, []
        return effects

    # --- requests come ------------------------------------------------------------------------------------------------

    def _submit(self, gateway: str, message: Submit, now: float) -> None:
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
        request = Request.of(spec, epoch, now, service.eos_token_ids, service.context_limit)
        request.prefill_mode, request.prefill_order = message.prefill, message.order
        self._requests[spec.id] = request
        self._send(gateway, Accepted(spec.id, epoch, self._seq + 1))
        if message.decode_engine is None or message.decode_engine == self._settings.id:
            service.queue.waiting.append(request)
        else:
            request.decode_engine = message.decode_engine
            service.queue.unreserved.append(request)

    def _refusal(self, message: Submit, now: float) -> tuple[RefusalCode, str] | None:
        """Why a request cannot be taken; None if it can. What this engine knows is fresher than any router's view."""
        spec = message.spec
        service = self._services.get(spec.service)
        if self.state is not ProcessState.READY:
            return RefusalCode.DRAINING, f"engine is {self.state}"
        if service is None:
            return RefusalCode.UNKNOWN_SERVICE, f"service {spec.service!r} is not here"
        if service.pool.blocks_for(spec.num_tokens + 1) > service.pool.num_blocks:
            capacity = service.pool.num_blocks * service.pool.block_size
            return RefusalCode.NO_MEMORY, f"{spec.num_tokens} tokens do not fit the KV pool of {capacity}"
        if len(self._backlog.not_started(service)) >= self._settings.max_waiting:
            return RefusalCode.FULL, f"{self._settings.max_waiting} requests wait already"
        if message.multiplex:
            return self._multiplex_refusal(service, spec, now)
        return None

    def _multiplex_refusal(self, service: Service, spec: RequestSpec, now: float) -> tuple[RefusalCode, str] | None:
        """Tropical's rule 3 with today's numbers: the prefill must fit the smallest slack of the running decodes."""
        if service.pool.blocks_for(spec.num_tokens) > service.pool.num_free:
            return RefusalCode.NO_MEMORY, f"{service.pool.num_free} blocks are free"
        slack = service.min_slack_s(now, service.decode_step_s())
        request = Request.of(spec, Epoch(0), now, service.eos_token_ids, service.context_limit)
        stall = (
            self._backlog.remaining_s(self._step, now) + self._backlog.waiting_s(service) + service.prefill_s(request)
        )
        if slack is not None and stall >= slack:
            return RefusalCode.NO_SLACK, f"prefills of {stall * 1e3:.0f} ms exceed the slack of {slack * 1e3:.0f} ms"
        return None

    def _reserve_ahead(self, service: Service, now: float) -> None:
        """Ask decode engines for blocks early enough that prefills need not wait for them, and not much earlier."""
        queue = service.queue
        while queue.unreserved and self._handovers.may_reserve(service.name):
            request = self._schedulers[service.name].most_urgent(queue.unreserved, now)
            queue.unreserved.remove(request)
            ahead_s = (
                self._backlog.remaining_s(self._step, now)
                + self._backlog.waiting_s(service)
                + service.prefill_s(request)
            )
            self._effects += self._handovers.reserve(service, request, ahead_s, now)

    def adopt(self, service: Service, request: Request, now: float) -> None:
        """Another engine handed a request over, with blocks."""
        known = self._requests.get(request.id)
        if known is not None and known.epoch > request.epoch:
            request.release_blocks(service.pool)  # the gateway gave up the attempt that comes here so late
            return
        if known is not None:
            self._end(known, now)  # an earlier owner's: only one may go on
        self._requests[request.id] = request
        missing = max(0, service.pool.blocks_for(len(request.tokens)) - len(request.blocks))
        if request.is_decoding or service.pool.can_allocate(missing):
            request.blocks += service.pool.allocate(0 if request.is_decoding else missing)
            service.queue.running.append(request)
        else:
            request.release_blocks(service.pool)
            service.queue.waiting.append(request)

    # --- requests go --------------------------------------------------------------------------------------------------

    def _cancel(self, message: Cancel, now: float) -> None:
        request = self._requests.get(message.request)
        if request is not None and request.epoch <= message.epoch:
            self._num_cancelled += 1
            self._end(request, now)
        self._effects += self._handovers.cancel_incoming(message.request, message.epoch, now)

    def _answer(self, gateway: str, probe: Probe) -> None:
        missing = [(request, attempt) for request, attempt in probe.requests if not self._has(request, attempt)]
        if missing:
            self._send(gateway, NotHeld(missing))

    def _has(self, request: str, attempt: int) -> bool:
        owned = self._requests.get(request)
        is_owned = owned is not None and owned.epoch.attempt == attempt
        return is_owned or self._handovers.expects(request, attempt)

    def _end(self, request: Request, now: float) -> None:
        """The request is over here, for whatever reason."""
        if request.is_over:
            return
        request.is_over = True
        self._ended[request.id] = request.epoch
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        service = self._services[request.spec.service]
        service.queue.remove(request)
        if self._requests.get(request.id) is request:
            del self._requests[request.id]
        if request.transfer is not None:
            self._effects += self._handovers.cancel_outgoing(request.transfer, "request ended", now)
        self._release(request)

    def _release(self, request: Request) -> None:
        """Free the blocks of a request that is over, unless the running step or a transfer still touches them."""
        service = self._services[request.spec.service]
        computing = self._step is not None and any(share.sequence is request for share in self._step.shares)
        if request.is_over and not computing and request not in service.queue.pinned:
            request.release_blocks(service.pool)

    def handed_over(self, request: Request, now: float) -> None:
        """The decode engine owns it now."""
        self._end(request, now)

    def not_handed_over(self, request: Request, code: RefusalCode, reason: str, now: float) -> None:
        """The transfer failed: the gateway decides who goes on."""
        if not request.is_over:
            self._send(request.spec.gateway, Refused(request.id, request.epoch, code, reason))
            self._end(request, now)

    def migrated(self, request: Request, to: str, epoch: Epoch, now: float) -> None:
        """Another engine decodes it now. Its gateway is told: that engine may die before its first token is sent."""
        if not request.is_over:
            self._send(request.spec.gateway, Moved(request.id, epoch, to))
            self._end(request, now)

    def not_migrated(self, request: Request, to: str, now: float) -> None:
        """It goes on here as if nothing had happened."""
        self._peers.avoid(to, now)
        queue = self._services[request.spec.service].queue
        if not request.is_over and request not in queue.running:
            queue.running.append(request)

    def unpinned(self, request: Request) -> None:
        """No transfer reads its blocks any more."""
        self._release(request)

    def _migrate(self, message: Migrate, now: float) -> None:
        request = self._requests.get(message.request)
        obstacle = self._obstacle(message, request)
        if request is None or obstacle is not None:
            self._handovers.tally.aborted(message.request, message.to, obstacle or "it is not here")
            return
        log.info("migrates a request", request=request.id, to=message.to, reason=message.reason)
        service = self._services[request.spec.service]
        self._effects += self._handovers.migrate(service, request, message.to, now)

    def _obstacle(self, message: Migrate, request: Request | None) -> str | None:
        """Why a request cannot migrate; None if it can."""
        if request is None:
            return "it is not here"
        if message.to == self._settings.id:
            return "it is there already"
        if request.transfer is not None:
            return "it is on its way already"
        return None if self._is_movable(request) else "it does not decode now"

    def _is_movable(self, request: Request) -> bool:
        queue = self._services[request.spec.service].queue
        idle = request.transfer is None and request not in queue.pinned
        return idle and request.is_decoding and request in queue.running

    def _movable(self, service: Service) -> list[Request]:
        return [request for request in service.queue.running if self._is_movable(request)]

    def _send_back(self, now: float) -> None:
        """What has not begun here is for the gateways to send elsewhere."""
        for service in self._services.values():
            waiting = self._backlog.not_started(service) if self._peers.any_for(service.name) else ()
            for request in waiting:
                reason = "the engine is drained"
                self._send(request.spec.gateway, Refused(request.id, request.epoch, RefusalCode.DRAINING, reason))
                self._end(request, now)

    def _give_away(self, now: float) -> None:
        """Migrate what the rules want elsewhere now."""
        while (move := self._rescheduler.next_move(self.role, now)) is not None:
            log.info("migrates a request", request=move.request.id, to=move.to, reason=move.reason)
            self._effects += self._handovers.migrate(move.service, move.request, move.to, now, move.min_freeness)

    # --- iterations ---------------------------------------------------------------------------------------------------

    def next_batch(self, now: float) -> tuple[Batch | None, list[Effect]]:
        """What to compute next; None if there is nothing. Bring the result to `finish_step` before asking again."""
        for service, shares in self._choices(now):
            if shares:
                self._rotation.remove(service.name)
                self._rotation.append(service.name)
                prompts = [share for share in shares if not share.sequence.is_decoding]
                self._step = Step(service, shares, prompts, now)
                chunks = [share.sequence.chunk(share.num_tokens) for share in shares]
                return Batch(service.name, chunks), self._finish_event(now)
        if not any(service.queue.running for service in self._services.values()):
            self._pace.pause()
        return None, self._finish_event(now)

    def _choices(self, now: float) -> Iterator[tuple[Service, Sequence[Share]]]:
        """What could be computed next: parts of a batch that failed, then what the services plan, in turns."""
        while self._failed_parts:
            service, shares = self._failed_parts.popleft()
            yield service, [share for share in shares if not share.sequence.is_over]
        for name in list(self._rotation):
            yield self._services[name], self._plan(self._services[name], now)

    def _plan(self, service: Service, now: float) -> Sequence[Share]:
        plan = self._plan_once(service, now)
        if plan.starved and not plan.shares and self._handovers.num_migrating_in:
            self._effects += self._handovers.reclaim(service, now)
            plan = self._plan_once(service, now)
        return plan.shares

    def _plan_once(self, service: Service, now: float) -> Plan:
        plan = self._schedulers[service.name].plan(service.queue, self.role, now)
        self._num_preempted += len(plan.preempted)
        for request in plan.preempted:
            if request.transfer is not None:
                self._effects += self._handovers.cancel_outgoing(request.transfer, "preempted", now)
                request.transfer = None
        for request in plan.outgrown:
            self._deliver({request.spec.gateway: [request.take_delta(FinishReason.LENGTH)]})
            self._end(request, now)
        return plan

    def finish_step(self, result: StepResult, now: float) -> list[Effect]:
        """The batch that `next_batch` gave is computed."""
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError(f"a step finished that was not started: {self!r}")
        self._learn(step, result.elapsed_s)
        if len(step.prompts) < len(step.shares):
            self._pace.stepped(now)
        deltas: dict[str, list[Delta]] = defaultdict(list)
        for share, chunk in zip(step.shares, result.chunks, strict=True):
            request = share.sequence
            if request.is_over:
                self._release(request)
                continue
            request.num_computed += share.num_tokens
            if chunk.prompt_logprobs:
                request.prompt_logprobs += chunk.prompt_logprobs
            request.publish_full_blocks(step.service.pool)
            if chunk.token is None:
                self._effects += self._handovers.blocks_ready(request, now)
                continue
            finish = request.append(chunk.token, chunk.logprobs, now)
            if finish is not None or not request.has_delivered or request.num_held >= self._settings.deliver_every:
                deltas[request.spec.gateway].append(request.take_delta(finish))
            if finish is not None:
                self._end(request, now)
            elif request.transfer is not None:
                self._effects += self._handovers.blocks_ready(request, now)
                if self._handovers.may_commit(request):
                    if request.num_held:
                        deltas[request.spec.gateway].append(request.take_delta(None))
                    step.service.queue.remove(request)
                    self._effects += self._handovers.commit(request, now)
        self._deliver(deltas)
        return self._finish_event(now)

    def num_steady_steps(self) -> int:
        """How many steps like the running one may be passed by `pass_steps`, as things are now."""
        step = self._step
        others = (service.queue for service in self._services.values() if step is None or service is not step.service)
        is_busy = any(queue.waiting or queue.unreserved or queue.running for queue in others)
        if step is None or is_busy or self._failed_parts:
            return 0
        return num_steady_steps(step.service.queue, step.shares, self._settings.deliver_every)

    def pass_steps(self, num_steps: int, token: int, now: float) -> None:
        """``num_steps`` decode steps have ended, the last one ``now``; all drew ``token``; the next one is running.

        At most `num_steady_steps`. For whoever models steps: nothing is learnt of their durations.
        """
        step = self._step
        if step is None:
            raise RuntimeError(f"steps were passed but none runs: {self!r}")
        pass_steps(step.service.pool, step.shares, num_steps, token)
        self._pace.stepped(now, num_steps)
        self._step = replace(step, started_at=now)

    def fail_step(self, reason: str, now: float) -> list[Effect]:
        """The batch could not be computed. Its halves are tried by themselves until the request is found that fails."""
        step, self._step = self._step, None
        if step is None:
            return []
        for share in step.shares:
            self._release(share.sequence)
        alive = [share for share in step.shares if not share.sequence.is_over]
        if len(step.shares) > 1:
            middle = -(-len(alive) // 2)
            self._failed_parts.extendleft([(step.service, alive[middle:]), (step.service, alive[:middle])])
            return self._finish_event(now)
        for share in alive:
            self._send(share.sequence.spec.gateway, Failed(share.sequence.id, share.sequence.epoch, reason))
            self._end(share.sequence, now)
        return self._finish_event(now)

    def _deliver(self, deltas: Mapping[str, list[Delta]]) -> None:
        for gateway, of_gateway in deltas.items():
            self._send(gateway, StepTokens(of_gateway))

    def _learn(self, step: Step, elapsed_s: float) -> None:
        """Keep the cost model true."""
        chunks = [(share.num_tokens, share.sequence.num_computed) for share in step.prompts]
        decodes = step.shares if not step.prompts else [share for share in step.shares if share not in step.prompts]
        context = sum([len(share.sequence.tokens) for share in decodes])
        step.service.learn(Load(chunks, len(decodes), context), elapsed_s)

    # --- what others may know -----------------------------------------------------------------------------------------

    def status(self, now: float) -> EngineStatus:
        """A fresh account, numbered."""
        self._seq += 1
        services = self._services.values()
        decoding = [(service, service.decoding()) for service in services]
        step_s = sum([service.decode_step_s(sequences) for service, sequences in decoding])
        prefills = self._backlog.account(self._step, now)
        return EngineStatus(
            seq=self._seq,
            state=self.state,
            role=self.role,
            host=self._settings.host,
            pid=self._settings.pid,
            services=[service.status(self.freeness(service, now)) for service in services],
            num_running=sum(len(service.queue.running) for service in services),
            num_waiting=prefills.num_waiting,
            num_tokens=sum([len(request.tokens) for request in self._requests.values()]),
            prefill_remaining_s=prefills.remaining_s,
            prefill_waiting_s=prefills.waiting_s,
            decode_step_s=step_s,
            min_slack_s=min_or_none([service.min_slack_s(now, step_s, sequences) for service, sequences in decoding]),
            min_tpot_slo_s=min([one.spec.slo_tpot_s for _, sequences in decoding for one in sequences], default=None),
            prefills=prefills.pending,
            pace_s=self._pace.seconds,
            num_role_changes=self._num_role_changes,
            num_devices=self._settings.num_devices,
            num_reserved=self._handovers.num_incoming,
            cancelled_total=self._num_cancelled,
            preemptions_total=self._num_preempted,
            num_migrating_out=len(self._handovers.migrating_out()),
            num_migrating_in=self._handovers.num_migrating_in,
            migrations_total=self._handovers.tally.num_completed,
            migrations_aborted_total=self._handovers.tally.num_aborted,
            last_aborted_migration=self._handovers.tally.last_abort,
        )

    def freeness(self, service: Service, now: float) -> float:
        """Of one service here: tokens of head room for each running request."""
        running, capacity = service.queue.running, service.pool.num_blocks * service.pool.block_size
        cost, most_running = service.step_cost().decode, self._settings.limits.max_running
        headroom = headroom_tokens(cost, capacity, running, most_running, IDEAL_SLOWDOWN)
        return self._physical_freeness(service, now) - headroom / max(1, len(running))

    def _physical_freeness(self, service: Service, now: float) -> float:
        """Without head room for high priority."""
        queue, pool = service.queue, service.pool
        head = self._schedulers[service.name].most_urgent(queue.waiting, now) if queue.waiting else None
        free = free_tokens(
            pool.num_blocks * pool.block_size,
            pool.num_held * pool.block_size,
            0 if head is None else len(head.tokens),
            is_emptied=self.state is not ProcessState.READY,
        )
        return freeness(free, len(queue.running))

    def _pace_s(self) -> float:
        return self._pace.seconds

    def _send(self, to: str, message: Accepted | Refused | Moved | NotHeld | Failed | StepTokens) -> None:
        self._effects.append(Send(to, message))

    def check_invariants(self) -> None:
        """Raise AssertionError unless every held block is accounted for."""
        for service in self._services.values():
            service.pool.check_invariants()
            queue = service.queue
            assert not {*queue.waiting, *queue.unreserved} & set(queue.running), "a request stands in two places"
            assert all(self._requests.get(request.id) is request for request in queue.running), (
                "an unowned request runs"
            )
            assert all(not request.blocks for request in (*queue.waiting, *queue.unreserved)), "a waiting request holds"
        if self.is_idle:
            leaked = {name: service.pool for name, service in self._services.items() if service.pool.num_held}
            assert not leaked, f"blocks are held though nothing is here: {leaked}"
