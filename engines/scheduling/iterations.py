"""Decides what an engine computes next, and what the result means for the requests of the batch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from engines.costs.pace import Pace
from engines.engine_request import EngineRequest
from engines.filling.filling import Filling
from engines.requests import OwnedRequests
from engines.scheduling.answers import Answers
from engines.scheduling.batch import ChunkResult, Rows, StepResult, Unsampled
from engines.scheduling.disciplines.by_urgency import gives_way, urgent_first
from engines.scheduling.disciplines.discipline import Discipline, Ranking, Turn
from engines.scheduling.disciplines.static import StaticBatches
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.running_step import RunningStep
from engines.scheduling.scheduler import LocalScheduler, Share, StepPlan, precedence
from engines.scheduling.service import Service
from engines.scheduling.slicing import Slicing
from engines.scheduling.steady import SteadyBatch
from engines.scheduling.step import Step
from engines.speculation.drafting import loads_of
from engines.speculation.model_speculation import wanted_blocks
from engines.speculation.speculates import Speculates
from engines.standing.standing import Standing
from engines.tiers.tiering import Tiering
from engines.transfers.handover import Handovers
from engines.transfers.outcomes import EngineOutcome
from kvtransfer.protocol import Send
from mesh.wire.control import Role
from mesh.wire.requests import PRIORITY_BATCH, FailureCode, FinishReason, StepTokens


class Iterations:
    """One step runs at a time. ``deliver_every``: see `engines.settings.EngineSettings`."""

    def __init__(
        self,
        services: Mapping[str, Service],
        schedulers: Mapping[str, LocalScheduler],
        discipline: Discipline,
        slicing: Slicing,
        handovers: Handovers,
        standing: Standing,
        pace: Pace,
        deliver_every: int,
        running: RunningStep,
        requests: OwnedRequests,
        filling: Filling,
        tiering: Tiering,
    ) -> None:
        self._services = services
        self._schedulers = schedulers
        self._discipline = discipline
        self._static = discipline if isinstance(discipline, StaticBatches) else None
        self._pads = self._static is not None and self._static.pads
        self._slicing = slicing
        self._handovers = handovers
        self._standing = standing
        self._pace = pace
        self._deliver_every = deliver_every
        self._running = running
        self._requests = requests
        self._filling = filling
        self._tiering = tiering

    def __repr__(self) -> str:
        return f"<Iterations of {list(self._services)}>"

    @property
    def _holding(self) -> list[Speculates]:
        """Speculations that hold blocks of their own."""
        speculations = [service.speculation for service in self._services.values()]
        return [one for one in speculations if one is not None and one.holds_blocks]

    # --- choosing -----------------------------------------------------------------------------------------------------

    def next_step(self, now: float) -> tuple[Step | None, list[EngineOutcome]]:
        """Return what to compute next; None if there is nothing."""
        outcomes = self._end_padded(now)
        step, chosen = self._choose(now)
        outcomes += chosen
        while step is None and (ended := self._end_padded(now)):  # its rows held the memory that the rest wants
            step, chosen = self._choose(now)
            outcomes += [*ended, *chosen]
        if step is None and not any(service.queue.running for service in self._services.values()):
            self._pace.pause()
        return step, outcomes

    def _choose(self, now: float) -> tuple[Step | None, list[EngineOutcome]]:
        outcomes: list[EngineOutcome] = []
        for speculation in self._holding:
            speculation.settle()
        if (part := self._failed_part()) is not None:
            return self._start(*part, self._rows(part[1]), now), outcomes
        is_filling = self._filling.is_needed
        if is_filling:
            self._filling.make_room()
        for service, shares, planned in self._choices(now):
            outcomes += planned
            if shares:
                beside = self._filling.beside(service, shares, now) if is_filling else []
                drafted = self._drafted(service, [*shares, *beside], now)
                return self._start(service, drafted, self._rows(shares), now), outcomes
        if is_filling and (alone := self._filling.alone()) is not None:
            return self._start(*alone, None, now), outcomes
        return None, outcomes

    def _drafted(self, service: Service, shares: Sequence[Share], now: float) -> Sequence[Share]:
        """With drafts where they pay. The time of a step that computes prompts is theirs."""
        speculation, queue = service.speculation, service.queue
        if speculation is None or not all(share.request.is_decoding for share in shares):
            return shares
        others = [one for other in self._services.values() if other is not service for one in other.decoding()]
        return speculation.drafted(shares, others, queue, service.cost.current.decode, now)

    def _rows(self, shares: Sequence[Share]) -> Rows | None:
        return None if self._static is None else self._static.rows([share.request for share in shares])

    def _start(self, service: Service, shares: Sequence[Share], rows: Rows | None, now: float) -> Step:
        prompts = [share for share in shares if not share.request.is_decoding]
        step = Step(service, shares, prompts, now, rows)
        self._running.start(step)
        return step

    def _failed_part(self) -> tuple[Service, list[Share]] | None:
        """The next part of a batch that failed: nobody joins it, as others may be in the parts behind it."""
        while self._running.failed_parts:
            service, shares = self._running.failed_parts.popleft()
            if running := [share for share in shares if _still_runs(share.request)]:
                return service, running
        return None

    def _choices(self, now: float) -> Iterator[tuple[Service, Sequence[Share], list[EngineOutcome]]]:
        """What could be computed next: what is planned for each turn. If that is nothing, no prompt gives way."""
        by_urgency = len(self._services) > 1 and self._discipline.rank(now) is None
        is_prefill = self._standing.role is Role.PREFILL
        for may_wait in (True, False) if by_urgency and not is_prefill else (False,):
            turns: Iterable[Turn] = self._discipline.turns(now)
            if by_urgency and is_prefill:
                turns = urgent_first(turns, self._services, self._schedulers, now)
            for turn in turns:
                service = self._services[turn.service]
                if service.paused_at is None and not service.queue.is_empty:
                    yield service, *self._plan(turn, may_wait, now)

    def _plan(self, turn: Turn, may_wait: bool, now: float) -> tuple[Sequence[Share], list[EngineOutcome]]:
        service = self._services[turn.service]
        plan, outcomes = self._plan_once(turn, may_wait, now)
        if plan.starved and not plan.shares and self._handovers.arrivals.num_migrating:
            reclaimed = self._handovers.arrivals.reclaim(now)
            plan, planned = self._plan_once(turn, may_wait, now)
            outcomes += [*reclaimed, *planned]
        while plan.starved and not plan.shares and (victim := self._less_urgent(service, plan.starved, now)):
            queue, request = victim
            queue.preempt(request)
            preempted = self._book_preempted([request], now)
            plan, planned = self._plan_once(turn, may_wait, now)
            outcomes += [*preempted, *planned]
        return plan.shares, outcomes

    def _less_urgent(
        self, service: Service, starved: Sequence[EngineRequest], now: float
    ) -> tuple[ServiceQueue, EngineRequest] | None:
        """Find who is to lose its blocks where a service cannot go on for want of memory: the least urgent request of
        the other services, if it is less urgent than those that starve. So of services that want each other's memory
        one goes on. What a service wants beyond its quota nobody else has.
        """
        if not service.pool.num_of_quota:
            return None
        rank = self._discipline.rank(now)
        others = [other.queue for other in self._services.values() if other is not service]
        running = [(queue, request) for queue in others for request in queue.running if request not in queue.pinned]
        if not running:
            return None
        victim = max(running, key=lambda one: precedence(one[1], rank))
        if precedence(victim[1], rank) < min(precedence(request, rank) for request in starved):
            return None
        return victim

    def _plan_once(self, turn: Turn, may_wait: bool, now: float) -> tuple[StepPlan, list[EngineOutcome]]:
        service, rank = self._services[turn.service], self._discipline.rank(now)
        if (holding := self._holding) and not service.pool.can_allocate(wanted_blocks(service.queue)):
            for speculation in holding:
                speculation.make_room()
        role = self._standing.role
        outcomes = [*self._slicing.before_plan(service, now), *self._tiering.before_plan(service, rank, now)]
        scheduler = self._schedulers[service.name]
        if rank is None:
            waits = may_wait and gives_way(service.name, self._services, self._schedulers, now)
            plan = scheduler.plan(service.queue, role, now, gives_way=waits)
        else:
            with closing(self._discipline.prompts(service.name, service.queue.prompts(), now)) as prompts:
                ranking = Ranking(rank, prompts, turn.members)
                plan = scheduler.plan(service.queue, role, now, turn.phase, ranking)
        for request in plan.entered:
            self._standing.has_news = True
            self._discipline.changed(request)
        if plan.preempted:
            outcomes += self._book_preempted(plan.preempted, now)
        for request in plan.outgrown:
            outcomes.append(Send(request.spec.gateway, StepTokens([request.take_delta(FinishReason.LENGTH)])))
            outcomes += self._requests.end(request, now)
        return plan, outcomes

    def _book_preempted(self, requests: Sequence[EngineRequest], now: float) -> list[EngineOutcome]:
        outcomes: list[EngineOutcome] = []
        self._standing.has_news = True
        self._standing.num_preempted += len(requests)
        for request in requests:
            self._discipline.changed(request)
            if request.transfer is not None:
                outcomes += self._handovers.departures.cancel(request.transfer, "preempted", now)
                request.transfer = None
        return outcomes

    # --- booking ------------------------------------------------------------------------------------------------------

    def finish(self, result: StepResult, now: float) -> list[EngineOutcome]:
        """The step that `next_step` gave is computed."""
        running, step = self._running, self._running.step
        if step is None:
            raise RuntimeError("a step finished that was not started")
        repeated = running.repeated(result)
        if not result.had_extra_threads:
            step.service.learn(running.load(step), result.elapsed_s - sum(result.drafting_s))
            self._learn_drafting(step, result)
        if len(step.prompts) < len(step.shares):
            self._pace.stepped(now, result.tokens_a_decode if step.service.speculation is not None else 1)
        if repeated is not None:
            return self._book_steady(step, *repeated, now)
        running.end()
        return self._book(step, result, now)

    def _learn_drafting(self, step: Step, result: StepResult) -> None:
        """Each step of a draft model teaches its own cost."""
        if result.drafting_s:
            drafting = step.drafting()
            for load, seconds in zip(loads_of(drafting), result.drafting_s, strict=False):
                self._services[drafting[0].service].learn(load, seconds)

    def _book_steady(self, step: Step, steady: SteadyBatch, token: int, now: float) -> list[EngineOutcome]:
        """Book steady decodes, as `_book` does: only those matter that have ended or are due to be told of."""
        is_due = self._running.num_steps_to_delivery() == 1
        ended = steady.finish(token)
        self._running.end()
        answers = Answers()
        for request in steady.members if is_due else ended:
            self._drew(request, FinishReason.LENGTH if request.num_left <= 0 else None, answers, now)
        self._charge(step, now)
        return [*answers.in_order(), *self._end_padded(now)] if is_due or ended else []

    def _book(self, step: Step, result: StepResult, now: float) -> list[EngineOutcome]:
        """What it means for each request."""
        answers = Answers()
        pool = step.service.pool
        for share, chunk in zip(step.shares, result.chunks, strict=True):
            request = share.request
            if request.is_over:
                self._requests.release(request)
                continue
            if chunk.unsampled is not None:
                self._missed(request, share, chunk.unsampled, answers, now)
                continue
            request.advance(share.num_tokens, pool)
            if chunk.prompt_logprobs:
                request.prompt_logprobs += chunk.prompt_logprobs
            if chunk.token is None:
                answers.outcomes += self._handovers.departures.blocks_ready(request, now)
            else:
                request.vector = chunk.vector
                self._drew(request, self._append(share, chunk, chunk.token, step.service, now), answers, now)
        self._charge(step, now)
        if any(share.request.is_decoding for share in step.prompts):
            self._standing.has_news = True
        return [*answers.in_order(), *self._end_padded(now)]

    @staticmethod
    def _append(share: Share, chunk: ChunkResult, token: int, service: Service, now: float) -> FinishReason | None:
        """Let the request have its token, and those that drafts brought, up to one that ends it."""
        request = share.request
        if (share.drafts or share.drafting is not None) and service.speculation is not None:
            service.speculation.checked(share, chunk)
        finish = request.append(token, chunk.logprobs, now)
        for one in chunk.further:
            if finish is not None or one.token is None:
                break
            request.advance(1, service.pool)
            finish = request.append(one.token, one.logprobs, now)
        request.forced = chunk.forced
        return finish

    def _missed(self, request: EngineRequest, share: Share, unsampled: Unsampled, answers: Answers, now: float) -> None:
        """No token was sampled for it: it fails, or its last token is computed again."""
        if unsampled.code is FailureCode.STEP:
            self._services[request.spec.service].pool.unpublish(request.blocks)  # their KV may be what is wrong
        if unsampled.code is not None:
            answers.outcomes += self._requests.give_up(request, unsampled.reason, unsampled.code, now)
        elif request.spec.sampling.prompt_logprobs is None:
            request.advance(share.num_tokens - 1, self._services[request.spec.service].pool)

    def _drew(self, request: EngineRequest, finish: FinishReason | None, answers: Answers, now: float) -> None:
        """It has one token more."""
        if self._pads and not request.is_filler:
            self._keep_row(request, finish)
            return
        if finish is not None or not request.has_delivered or request.num_held >= self._deliver_every:
            answers.add(request, finish)
        if finish is not None:
            answers.outcomes += self._requests.end(request, now)
        elif request.transfer is not None:
            self._let_move(request, answers, now)
        elif request.has_used_slice:
            answers.given_back.append(request)
            self._let_go(request, answers, now)

    def _let_move(self, request: EngineRequest, answers: Answers, now: float) -> None:
        departures = self._handovers.departures
        answers.outcomes += departures.token_sampled(request, now)
        if departures.may_commit(request):
            if request.num_held:
                answers.add(request, None)
            self._services[request.spec.service].queue.remove(request)
            self._discipline.ended(request)
            answers.outcomes += departures.commit(request, now)

    def let_paused_move(self, service: Service, now: float) -> list[EngineOutcome]:
        """Let go the requests of a paused service of which little is left to copy: no token of theirs is waited for."""
        answers = Answers()
        for request in list(service.queue.running):
            if request.transfer is not None and self._handovers.departures.may_commit(request):
                self._let_move(request, answers, now)
        return answers.in_order()

    def computes(self, service: Service) -> bool:
        """Return whether the running step is of that service, or parts of one that failed are to be computed."""
        parts = [part for part, _ in self._running.failed_parts]
        return service in parts or (self._running.step is not None and self._running.step.computes(service))

    def _let_go(self, request: EngineRequest, answers: Answers, now: float) -> None:
        """Its slice is used up: its gateway dispatches it anew."""
        if request.num_held:
            answers.add(request, None)
        answers.outcomes += self._requests.end(request, now)

    def _keep_row(self, request: EngineRequest, finish: FinishReason | None) -> None:
        assert self._static is not None
        if finish is not None or request.has_used_slice:
            request.finish = finish
            self._static.complete(request)

    def _end_padded(self, now: float) -> list[EngineOutcome]:
        """Answers of a padded batch come when it is over."""
        if self._static is None or not (rows := self._static.take_over()):
            return []
        answers = Answers()
        for request in rows:
            answers.add(request, request.finish)
            answers.outcomes += self._requests.end(request, now)
        answers.given_back += [request for request in rows if request.finish is None]
        return answers.in_order()

    def _charge(self, step: Step, now: float) -> None:
        """Let its requests pay for it. Who has ended has paid."""
        requests = [share.request for share in step.shares if share.request.spec.priority > PRIORITY_BATCH]
        if requests:
            self._discipline.ran(step.service.name, requests, now - step.started_at)

    def fail(self, reason: str, now: float) -> list[EngineOutcome]:
        """The batch could not be computed. Its halves are tried by themselves until the request is found that fails."""
        step = self._running.step
        self._running.end()
        if step is None:
            return []
        for share in step.shares:
            self._requests.release(share.request)
        alive = [Share(share.request, share.num_tokens) for share in step.shares if not share.request.is_over]
        if len(step.shares) > 1:
            middle = -(-len(alive) // 2)
            self._running.failed_parts.extendleft([(step.service, alive[middle:]), (step.service, alive[:middle])])
            return []
        outcomes: list[EngineOutcome] = []
        for request in [share.request for share in alive]:
            outcomes += self._requests.give_up(request, reason, FailureCode.STEP, now)
        return outcomes


def _still_runs(request: EngineRequest) -> bool:
    """A filler may have lost its blocks since it failed."""
    return not request.is_over and (not request.is_filler or bool(request.blocks))
