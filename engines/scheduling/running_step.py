"""The step that an engine computes, and the steps like it that follow: what repeats is passed in one go."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from engines.costs.pace import Pace
from engines.costs.step_cost import StepLoad
from engines.engine_request import EngineRequest
from engines.memory.block_digests import digests_of
from engines.scheduling.answers import Answers
from engines.scheduling.batch import StepResult
from engines.scheduling.disciplines.discipline import Discipline, IterationPhase, Turn
from engines.scheduling.disciplines.slo import InTurns
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Share
from engines.scheduling.service import Service
from engines.scheduling.steady import SteadyBatch, num_steps_to_delivery, steady_batch
from engines.scheduling.step import Step
from kvtransfer.protocol import Send

NEVER = 2**62  # steps


class RunningStep:
    """The step that runs; there is one at most. ``deliver_every``: see `engines.settings.EngineSettings`.

    ``pads``: rows of its batches are as long as the longest, and answers come at the end of all.
    ``is_static``: nobody joins a batch. ``max_running``: of one service's requests at a time.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        discipline: Discipline,
        pace: Pace,
        deliver_every: int,
        max_running: int,
        *,
        is_static: bool,
        pads: bool,
    ) -> None:
        self.step: Step | None = None
        self.failed_parts: deque[tuple[Service, Sequence[Share]]] = deque()  # of batches, to be computed by themselves
        self._services = services
        self._discipline = discipline
        self._pace = pace
        self._deliver_every = deliver_every
        self._max_running = max_running
        self._is_static = is_static
        self._pads = pads
        self._steady: SteadyBatch | None = None  # what the running step decodes, once it was asked for
        self._due_in: int | None = None  # steps until tokens are to be delivered; None: not known

    def __repr__(self) -> str:
        return f"<RunningStep {'none' if self.step is None else self.step.service.name}>"

    def start(self, step: Step) -> None:
        """This one runs from now on."""
        self.step, self._due_in = step, None
        fillers = step.service.queue.fillers
        if fillers:
            fillers.computing = tuple([share.request for share in step.shares if share.request.is_filler])

    def computes(self, request: EngineRequest) -> bool:
        """Return whether the running step computes the request."""
        return self.step is not None and any(share.request is request for share in self.step.shares)

    def load(self, step: Step) -> StepLoad:
        """Return what the running step computes."""
        return step.load() if self._steady is None or step.rows is not None else self._steady.load()

    def repeated(self, result: StepResult) -> tuple[SteadyBatch, int] | None:
        """The steady decodes that ran and the token that all of them sampled; None: there are none, or they differ."""
        if self._steady is None:
            return None
        first = result.chunks[0]
        if first.token is None or result.chunks.count(first) != len(result.chunks):
            return None
        return self._steady, first.token

    def end(self) -> None:
        """The step has ended: its requests are to be seen as they are."""
        self.settle()
        if self.step is not None:
            self.step.service.queue.fillers.computing = ()
        self.step = None

    def num_steady_steps(self) -> int:
        """Return how many steps like the running one may be passed by `pass_steps`, as things are now.

        Only those that end before `steady_until`.
        """
        step = self.step
        if step is None or self.failed_parts:
            return 0
        queue = step.service.queue
        for service in self._services.values():
            other = service.queue
            if other.fillers.waiting or other.fillers.running or (other is not queue and other.unreserved):
                return 0
        may_change = queue.unreserved or queue.num_coming or len(queue.running) != len(step.shares)
        if (may_change or (queue.waiting and not self._stay_waiting(step.service))) and not self._is_static:
            return 0
        steady = self._steady or self._find_steady(step)
        return 0 if steady is None else steady.num_steps_left()

    def _stay_waiting(self, service: Service) -> bool:
        """Whether none of those who wait for the running step's service can join what it decodes."""
        queue = service.queue
        is_plain = isinstance(self._discipline, InTurns) and len(self._services) == 1 and service.tiers is None
        return is_plain and _is_blocked(queue, self._max_running)

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
        """Return until when it stays the turn of the running step's service, if nothing happens."""
        step = self.step
        if step is None or len(self._services) == 1:
            return inf
        if not [1 for queue in self._others(step) if queue.waiting or queue.running or queue.num_coming]:
            return inf
        requests = [share.request for share in step.shares]
        return self._discipline.steady_until(Turn(step.service.name, IterationPhase.DECODE), requests, step.started_at)

    def _others(self, step: Step) -> list[ServiceQueue]:
        """Of the services whose step does not run."""
        return [service.queue for service in self._services.values() if service is not step.service]

    def num_steps_to_delivery(self) -> int:
        """Return after how many steps like the running one there are tokens to deliver."""
        if self.step is None:
            return 0
        if self._due_in is None:
            members = [share.request for share in self.step.shares]
            self._due_in = NEVER if self._pads else num_steps_to_delivery(members, self._deliver_every)
        return self._due_in

    def pass_steps(self, num_steps: int, token: int, now: float) -> list[Send]:
        """Note that decode steps have passed. ``num_steps`` decode steps have ended, the last one ``now``; all drew
        ``token``; the next one is running.

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
        self._due_in, answers = None, Answers()
        steady.book()
        for request in steady.members:
            if not request.has_delivered or request.num_held >= self._deliver_every:
                answers.add(request, None)
        return answers.tokens()


def _is_blocked(queue: ServiceQueue, max_running: int) -> bool:
    """Whether all that wait go on waiting until one of those that decode ends, if nothing else runs or comes and
    `engines.scheduling.scheduler` alone says who begins. Rather False than wrong.
    """
    return queue.num_taken >= max_running or _lack_memory(queue)


def _lack_memory(queue: ServiceQueue) -> bool:
    """Whether there is too little memory for any of them, and they may take none from what runs. It only gets less."""
    pool, waiting = queue.pool, queue.waiting
    if queue.slice_tokens is not None:
        return False
    fewest = min([len(request.tokens) for request in waiting])
    if pool.can_allocate(pool.blocks_for(fewest) + queue.growth_blocks):
        return False
    lowest = min([request.spec.priority for request in queue.running], default=0)
    return not [1 for one in waiting if one.spec.priority > lowest or _shares_memory(queue, one)]


def _shares_memory(queue: ServiceQueue, request: EngineRequest) -> bool:
    """Whether it begins like one that runs, and needs less memory for that. What is cached counts as free."""
    if not request.may_take_prefix:
        return False
    pool = queue.pool
    first = digests_of(
        request.tokens, min(len(request.tokens), pool.block_size), pool.block_size, request.spec.prefix_salt
    )
    blocks = [pool.find(digest) for digest in first]
    return any(block is not None and pool.is_held(block) for block in blocks)
