"""What an engine computes: which batch comes next, and what its result means for the requests in it."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from math import inf
from typing import Protocol

from engines.costs.step_cost import StepLoad
from engines.effects import Effect
from engines.engine_request import EngineRequest
from engines.scheduling.account import Standing
from engines.scheduling.backlog import Step
from engines.scheduling.batch import StepResult, Unsampled
from engines.scheduling.disciplines.discipline import Discipline, IterationPhase, Turn
from engines.scheduling.disciplines.static import StaticBatches
from engines.scheduling.pace import Pace
from engines.scheduling.scheduler import LocalScheduler, Plan, Ranking, ServiceQueue, Share, precedence
from engines.scheduling.slicing import Slicing
from engines.scheduling.steady import SteadyBatch, num_steps_to_delivery, steady_batch
from engines.status import Service
from engines.transfers.handover import Handovers
from kvtransfer.protocol import Send
from mesh.wire.requests import Delta, Epoch, Failed, FailureCode, FinishReason, SlicesEnded, StepTokens

NEVER = 2**62  # steps


class Owner(Protocol):
    """The core: what becomes of requests is its business."""

    def end(self, request: EngineRequest, now: float) -> list[Effect]: ...

    def release(self, request: EngineRequest) -> None: ...


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
        owner: Owner,
    ) -> None:
        self.step: Step | None = None
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
        self._owner = owner
        self._steady: SteadyBatch | None = None  # what the running step decodes, once it was asked for
        self._due_in: int | None = None  # steps until tokens are to be delivered; None: not known
        self._failed_parts: deque[tuple[Service, Sequence[Share]]] = deque()  # of batches, to be computed by themselves

    def computes(self, request: EngineRequest) -> bool:
        """Whether the running step touches it."""
        return self.step is not None and any(share.request is request for share in self.step.shares)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def next_step(self, now: float) -> tuple[Step | None, list[Effect]]:
        """What to compute next; None if there is nothing."""
        effects = self._end_padded(now)
        step = self._choose(effects, now)
        while step is None and (ended := self._end_padded(now)):  # its rows held the memory that the rest wants
            effects += ended
            step = self._choose(effects, now)
        if step is None and not any(service.queue.running for service in self._services.values()):
            self._pace.pause()
        return step, effects

    def _choose(self, effects: list[Effect], now: float) -> Step | None:
        for service, shares in self._choices(effects, now):
            if shares:
                prompts = [share for share in shares if not share.request.is_decoding]
                rows = None if self._static is None else self._static.rows([share.request for share in shares])
                self.step, self._due_in = Step(service, shares, prompts, now, rows), None
                return self.step
        return None

    def _choices(self, effects: list[Effect], now: float) -> Iterator[tuple[Service, Sequence[Share]]]:
        """What could be computed next: parts of a batch that failed, then what is planned for each turn."""
        while self._failed_parts:
            service, shares = self._failed_parts.popleft()
            yield service, [share for share in shares if not share.request.is_over]
        for turn in self._discipline.turns(now):
            yield self._services[turn.service], self._plan(turn, effects, now)

    def _plan(self, turn: Turn, effects: list[Effect], now: float) -> Sequence[Share]:
        service, plan = self._services[turn.service], self._plan_once(turn, effects, now)
        if plan.starved and not plan.shares and self._handovers.arrivals.num_migrating:
            effects += self._handovers.arrivals.reclaim(now)
            plan = self._plan_once(turn, effects, now)
        while plan.starved and not plan.shares and self._preempt_elsewhere(service, plan.starved, effects, now):
            plan = self._plan_once(turn, effects, now)
        return plan.shares

    def _preempt_elsewhere(
        self, service: Service, starved: Sequence[EngineRequest], effects: list[Effect], now: float
    ) -> bool:
        """Where one of a service cannot go on for want of memory: the least urgent one of the others loses its blocks,
        if it is the less urgent of the two. So of services that want each other's memory one goes on. What a service
        wants beyond its quota nobody else has.
        """
        if not service.pool.num_of_quota:
            return False
        rank = self._discipline.rank(now)
        others = [other.queue for other in self._services.values() if other is not service]
        running = [(queue, request) for queue in others for request in queue.running if request not in queue.pinned]
        if not running:
            return False
        queue, victim = max(running, key=lambda one: precedence(one[1], rank))
        if precedence(victim, rank) < min(precedence(request, rank) for request in starved):
            return False
        queue.preempt(victim)
        effects += self._book_preempted([victim], now)
        return True

    def _plan_once(self, turn: Turn, effects: list[Effect], now: float) -> Plan:
        service, rank = self._services[turn.service], self._discipline.rank(now)
        num_running, role = len(service.queue.running), self._standing.role
        effects += self._slicing.before_plan(service, now)
        scheduler = self._schedulers[service.name]
        if rank is None:
            plan = scheduler.plan(service.queue, role, now)
        else:
            with closing(self._discipline.prompts(service.name, service.queue.prompts(), now)) as prompts:
                ranking = Ranking(rank, prompts, turn.members)
                plan = scheduler.plan(service.queue, role, now, turn.phase, ranking)
        if len(service.queue.running) != num_running:
            self._standing.has_news = True
        if plan.preempted:
            effects += self._book_preempted(plan.preempted, now)
        for request in plan.outgrown:
            effects.append(Send(request.spec.gateway, StepTokens([request.take_delta(FinishReason.LENGTH)])))
            effects += self._owner.end(request, now)
        return plan

    def _book_preempted(self, requests: Sequence[EngineRequest], now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._standing.has_news = True
        self._standing.num_preempted += len(requests)
        for request in requests:
            self._discipline.preempted(request)
            if request.transfer is not None:
                effects += self._handovers.departures.cancel(request.transfer, "preempted", now)
                request.transfer = None
        return effects

    # --- booking ------------------------------------------------------------------------------------------------------

    def finish(self, result: StepResult, now: float) -> list[Effect]:
        """The step that `next_step` gave is computed."""
        step = self.step
        if step is None:
            raise RuntimeError("a step finished that was not started")
        steady, token = self._steady, self._common_token(result)
        step.service.learn(self.load(step), result.elapsed_s)
        if len(step.prompts) < len(step.shares):
            self._pace.stepped(now)
        if steady is not None and token is not None:
            return self._book_steady(step, steady, token, now)
        self.settle()
        return self._book(step, result, now)

    def load(self, step: Step) -> StepLoad:
        """Of the running step."""
        return step.load() if self._steady is None or step.rows is not None else self._steady.load()

    def _common_token(self, result: StepResult) -> int | None:
        """That all of the steady decodes have sampled that ran; None: they differ, or none ran."""
        if self._steady is None:
            return None
        first = result.chunks[0]
        return first.token if result.chunks.count(first) == len(result.chunks) else None

    def _book_steady(self, step: Step, steady: SteadyBatch, token: int, now: float) -> list[Effect]:
        """As `_book`: only those matter that have ended or are due to be told of."""
        is_due = self.num_steps_to_delivery() == 1
        ended = steady.finish(token)
        self.settle()
        self.step, said = None, _Said()
        for request in steady.members if is_due else ended:
            self._drew(request, FinishReason.LENGTH if request.num_left <= 0 else None, said, now)
        self._charge(step, now)
        return [*said.in_order(), *self._end_padded(now)] if is_due or ended else []

    def _book(self, step: Step, result: StepResult, now: float) -> list[Effect]:
        """What it means for each request."""
        self.step, said = None, _Said()
        pool = step.service.pool
        for share, chunk in zip(step.shares, result.chunks, strict=True):
            request = share.request
            if request.is_over:
                self._owner.release(request)
                continue
            if chunk.unsampled is not None:
                self._missed(request, share, chunk.unsampled, said, now)
                continue
            request.advance(share.num_tokens, pool)
            if chunk.prompt_logprobs:
                request.prompt_logprobs += chunk.prompt_logprobs
            if chunk.token is None:
                said.effects += self._handovers.departures.blocks_ready(request, now)
            else:
                self._drew(request, request.append(chunk.token, chunk.logprobs, now), said, now)
        self._charge(step, now)
        if any(share.request.is_decoding for share in step.prompts):
            self._standing.has_news = True
        return [*said.in_order(), *self._end_padded(now)]

    def _missed(self, request: EngineRequest, share: Share, unsampled: Unsampled, said: "_Said", now: float) -> None:
        """No token was sampled for it: it fails, or its last token is computed again."""
        if unsampled.code is FailureCode.STEP:
            self._services[request.spec.service].pool.unpublish(request.blocks)  # their KV may be what is wrong
        if unsampled.code is not None:
            said.effects += self._give_up(request, unsampled.reason, unsampled.code, now)
        elif request.spec.sampling.prompt_logprobs is None:
            request.advance(share.num_tokens - 1, self._services[request.spec.service].pool)

    def _give_up(self, request: EngineRequest, reason: str, code: FailureCode, now: float) -> list[Effect]:
        return [
            Send(request.spec.gateway, Failed(request.id, request.epoch, reason, code)),
            *self._owner.end(request, now),
        ]

    def _drew(self, request: EngineRequest, finish: FinishReason | None, said: "_Said", now: float) -> None:
        """It has one token more."""
        if self._pads:
            self._keep_row(request, finish)
            return
        if finish is not None or not request.has_delivered or request.num_held >= self._deliver_every:
            said.add(request, finish)
        if finish is not None:
            said.effects += self._owner.end(request, now)
        elif request.transfer is not None:
            self._let_move(request, said, now)
        elif request.has_used_slice:
            said.given_back.append(request)
            self._let_go(request, said, now)

    def _let_move(self, request: EngineRequest, said: "_Said", now: float) -> None:
        departures = self._handovers.departures
        said.effects += departures.token_sampled(request, now)
        if departures.may_commit(request):
            if request.num_held:
                said.add(request, None)
            self._services[request.spec.service].queue.remove(request)
            self._discipline.ended(request)
            said.effects += departures.commit(request, now)

    def _let_go(self, request: EngineRequest, said: "_Said", now: float) -> None:
        """Its slice is used up: its gateway dispatches it anew."""
        if request.num_held:
            said.add(request, None)
        said.effects += self._owner.end(request, now)

    def _keep_row(self, request: EngineRequest, finish: FinishReason | None) -> None:
        assert self._static is not None
        if finish is not None or request.has_used_slice:
            request.finish = finish
            self._static.complete(request)

    def _end_padded(self, now: float) -> list[Effect]:
        """Answers of a padded batch come when it is over."""
        if self._static is None or not (rows := self._static.take_over()):
            return []
        said = _Said()
        for request in rows:
            said.add(request, request.finish)
            said.effects += self._owner.end(request, now)
        said.given_back += [request for request in rows if request.finish is None]
        return said.in_order()

    def _charge(self, step: Step, now: float) -> None:
        """Let its requests pay for it. Who has ended has paid."""
        self._discipline.ran(step.service.name, [share.request for share in step.shares], now - step.started_at)

    def fail(self, reason: str, now: float) -> list[Effect]:
        """The batch could not be computed. Its halves are tried by themselves until the request is found that fails."""
        self.settle()
        step, self.step = self.step, None
        if step is None:
            return []
        for share in step.shares:
            self._owner.release(share.request)
        alive = [share for share in step.shares if not share.request.is_over]
        if len(step.shares) > 1:
            middle = -(-len(alive) // 2)
            self._failed_parts.extendleft([(step.service, alive[middle:]), (step.service, alive[:middle])])
            return []
        effects: list[Effect] = []
        for request in [share.request for share in alive]:
            effects += self._give_up(request, reason, FailureCode.STEP, now)
        return effects

    # --- for whoever models steps -------------------------------------------------------------------------------------

    def num_steady_steps(self) -> int:
        """How many steps like the running one may be passed by `pass_steps`, as things are now.

        Only those that end before `steady_until`.
        """
        step = self.step
        if step is None or self._failed_parts or [1 for queue in self._others(step) if queue.unreserved]:
            return 0
        queue = step.service.queue
        may_change = queue.waiting or queue.unreserved or queue.num_away or len(queue.running) != len(step.shares)
        if may_change and self._static is None:
            return 0
        steady = self._steady or self._find_steady(step)
        return 0 if steady is None else steady.num_steps_left()

    def _find_steady(self, step: Step) -> SteadyBatch | None:
        members = [share.request for share in step.shares]
        self._steady = steady_batch(step.service.pool, members)
        if self._steady is not None and members == step.service.queue.running:
            step.service.queue.steady = self._steady
        return self._steady

    def settle(self) -> None:
        """Whoever looks at what runs, or takes from it, is to see it as it is."""
        if (steady := self._steady) is not None:
            steady.book()
            self._steady = None
            for service in self._services.values():
                service.queue.steady = None

    def steady_until(self) -> float:
        """Until when it stays the turn of the running step's service, if nothing happens."""
        step = self.step
        others = [] if step is None else self._others(step)
        if step is None or not [1 for queue in others if queue.waiting or queue.running or queue.num_away]:
            return inf
        requests = [share.request for share in step.shares]
        return self._discipline.steady_until(Turn(step.service.name, IterationPhase.DECODE), requests, step.started_at)

    def _others(self, step: Step) -> list[ServiceQueue]:
        """Of the services whose step does not run."""
        return [service.queue for service in self._services.values() if service is not step.service]

    def num_steps_to_delivery(self) -> int:
        """After how many steps like the running one there are tokens to deliver."""
        if self.step is None:
            return 0
        if self._due_in is None:
            members = [share.request for share in self.step.shares]
            self._due_in = NEVER if self._pads else num_steps_to_delivery(members, self._deliver_every)
        return self._due_in

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        """``num_steps`` decode steps have ended, the last one ``now``; all drew ``token``; the next one is running.

        At most `num_steady_steps`, and no delivery is passed by. Nothing is learnt of their durations.
        """
        step = self.step
        if step is None or (steady := self._steady or self._find_steady(step)) is None:
            raise RuntimeError("steps were passed but none runs that repeats")
        due_in = self.num_steps_to_delivery()
        steady.pass_steps(num_steps, token)
        if step.service.queue.steady is not steady:
            steady.book()
        self._discipline.ran(step.service.name, steady.members, now - step.started_at)
        self._pace.stepped(now, num_steps)
        rows = step.rows and step.rows.after(num_steps)
        self.step = Step(step.service, step.shares, step.prompts, now, rows)
        self._due_in = due_in - num_steps
        return [] if self._due_in > 0 else self._deliver_held(steady)

    def _deliver_held(self, steady: SteadyBatch) -> list[Send]:
        self._due_in, said = None, _Said()
        steady.book()
        for request in steady.members:
            if not request.has_delivered or request.num_held >= self._deliver_every:
                said.add(request, None)
        return said.tokens()


class _Said:
    """What a step leads to: effects, tokens for each gateway, requests whose slice has ended."""

    __slots__ = ("_deltas", "effects", "given_back")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.given_back: list[EngineRequest] = []
        self._deltas: defaultdict[str, list[Delta]] = defaultdict(list)

    def add(self, request: EngineRequest, finish: FinishReason | None) -> None:
        """Its gateway is to hear of its tokens."""
        self._deltas[request.spec.gateway].append(request.take_delta(finish))

    def tokens(self) -> list[Send]:
        return [Send(gateway, StepTokens(deltas)) for gateway, deltas in self._deltas.items()]

    def in_order(self) -> list[Effect]:
        ended: defaultdict[str, list[tuple[str, Epoch]]] = defaultdict(list)
        for request in self.given_back:
            ended[request.spec.gateway].append((request.id, request.epoch))
        return [
            *self.effects,
            *self.tokens(),
            *[Send(gateway, SlicesEnded(requests)) for gateway, requests in ended.items()],
        ]
