"""The local scheduler: which tokens of which requests the next iteration computes.

Iteration-level and on one path: an iteration takes one token of every decoding sequence, then up to a budget of prompt
tokens. Decodes go first come, first served. Prefills go by priority, then those past their TTFT deadline (so that a
stream of short prompts cannot starve a long one), then shortest job first. A prefill engine computes one prompt at a
time: its time then depends on its length alone and can be predicted (Tropical).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from engines.blocks import BlockPool
from engines.sequence import Sequence
from mesh.messages import Role


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_running`` sequences hold blocks at a time; an iteration computes up to ``chunk_tokens`` prompt tokens."""

    max_running: int
    chunk_tokens: int


@dataclass(slots=True)
class ServiceQueue:
    """The sequences of one service on this engine and the pool that holds their KV."""

    service: str
    pool: BlockPool
    unreserved: list[Sequence] = field(default_factory=list)  # wait until another engine has reserved blocks for them
    waiting: list[Sequence] = field(default_factory=list)  # hold no blocks
    running: list[Sequence] = field(default_factory=list)  # hold blocks; oldest admission first
    pinned: set[Sequence] = field(default_factory=set)  # a transfer reads their blocks: not to be preempted

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands. Its blocks stay its own."""
        for place in (self.unreserved, self.waiting, self.running):
            if sequence in place:
                place.remove(sequence)


@dataclass(frozen=True, slots=True)
class Share:
    """``num_tokens`` of a sequence, to be computed in the coming iteration."""

    sequence: Sequence
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One iteration. ``preempted`` lost their blocks and wait again; ``outgrown`` fill the pool alone and must end."""

    shares: list[Share]
    preempted: list[Sequence] = field(default_factory=list)
    outgrown: list[Sequence] = field(default_factory=list)


class LocalScheduler:
    """``predict_s`` gives the seconds that a waiting sequence's prefill will take."""

    def __init__(self, limits: Limits, predict_s: Callable[[Sequence], float]) -> None:
        self._limits = limits
        self._predict_s = predict_s

    def plan(self, queue: ServiceQueue, role: Role, now: float) -> Plan:
        """Decide the next iteration and hold the blocks that it needs."""
        plan = Plan([])
        for sequence in [sequence for sequence in queue.running if sequence.is_decoding]:
            if sequence in queue.running and self._make_room(queue, sequence, plan):
                plan.shares.append(Share(sequence, 1))
        plan.shares[:] = [share for share in plan.shares if share.sequence not in plan.preempted]
        self._add_prefills(queue, role, now, plan)
        return plan

    def _make_room(self, queue: ServiceQueue, sequence: Sequence, plan: Plan) -> bool:
        """Hold a block for the next token, preempting others if need be; False if the sequence cannot go on now."""
        pool = queue.pool
        if len(sequence.blocks) * pool.block_size > sequence.num_computed:
            return True
        while not pool.can_allocate(1):
            victim = self._victim(queue)
            if victim is None or (victim is sequence and len(queue.running) == 1):
                plan.outgrown.append(sequence)
                return False
            self._preempt(queue, victim, plan)
            if victim is sequence:
                return False
        sequence.blocks += pool.allocate(1)
        return True

    @staticmethod
    def _victim(queue: ServiceQueue) -> Sequence | None:
        """The least urgent, latest arrived one."""
        candidates = [sequence for sequence in queue.running if sequence not in queue.pinned]
        return min(candidates, key=lambda sequence: (sequence.spec.priority, -sequence.arrived_at), default=None)

    @staticmethod
    def _preempt(queue: ServiceQueue, victim: Sequence, plan: Plan) -> None:
        queue.running.remove(victim)
        victim.release_blocks(queue.pool)
        queue.waiting.append(victim)
        plan.preempted.append(victim)

    def _add_prefills(self, queue: ServiceQueue, role: Role, now: float, plan: Plan) -> None:
        budget = self._limits.chunk_tokens
        prefilling = [sequence for sequence in queue.running if not sequence.is_decoding]
        while budget > 0:
            sequence = prefilling.pop(0) if prefilling else self._admit(queue, now, plan)
            if sequence is None:
                return
            num_tokens = min(budget, sequence.num_uncomputed)
            plan.shares.append(Share(sequence, num_tokens))
            budget -= num_tokens
            if role is Role.PREFILL:
                return

    def _admit(self, queue: ServiceQueue, now: float, plan: Plan) -> Sequence | None:
        """Move the most urgent waiting sequence that fits to the running ones, with blocks for all its tokens."""
        if plan.preempted or not queue.waiting or len(queue.running) >= self._limits.max_running:
            return None
        sequence = self.most_urgent(queue.waiting, now)
        pool = queue.pool
        sequence.take_prefix(pool)
        missing = pool.blocks_for(len(sequence.tokens)) - len(sequence.blocks)
        if not pool.can_allocate(missing + self._headroom(queue)):
            sequence.release_blocks(pool)
            return None
        sequence.blocks += pool.allocate(missing)
        queue.waiting.remove(sequence)
        queue.running.append(sequence)
        return sequence

    @staticmethod
    def _headroom(queue: ServiceQueue) -> int:
        """Blocks left for running sequences to grow into, lest the newcomer is preempted at once."""
        return len(queue.running)

    def most_urgent(self, sequences: list[Sequence], now: float) -> Sequence:
        """The one whose prefill should start first; there is at least one."""
        return min(sequences, key=lambda sequence: self._urgency(sequence, now))

    def _urgency(self, sequence: Sequence, now: float) -> tuple[int, bool, float, float]:
        starved = now > sequence.ttft_deadline
        size = sequence.arrived_at if starved else self._predict_s(sequence)
        return (-sequence.spec.priority, not starved, size, sequence.arrived_at)
