"""Decode steps that repeat: while nothing new happens, what many of them do can be done in one go."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from engines.costs.linear import decode_step_s
from engines.costs.step_cost import StepLoad
from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.scheduling.slack import is_beyond_repair
from mesh.wire.status import DecodeCost


class DecodeSummary(msgspec.Struct, frozen=True):
    """Summary of decodes: how many, tokens in all, the first moment at which one is late unless it has its next token
    by then, and the tightest promise. The last two are of those whose promise can still be kept, infinite if there are
    none.
    """

    num_requests: int
    context_tokens: int
    paid_until: float
    tpot_slo_s: float


class _Tightest(msgspec.Struct, frozen=True):
    """Of a promise. ``num_generated``: tokens of the ``member``, a place in the batch, before steps were passed."""

    promise_s: float
    first_token_at: float
    num_generated: int
    member: int


class SteadyBatch:
    """Decodes that step together, and nobody comes, leaves or ends: they share one count of steps.

    So a step that is passed costs the same however many they are, and so does what a status tells of them. Each is
    booked, with its tokens, when it fills a block, for the pool is always up to date; all of them by `book`, which goes
    before anybody else looks at their tokens.
    """

    __slots__ = (
        "_booked",
        "_context",
        "_filling",
        "_is_new",
        "_left",
        "_num_booked",
        "_num_passed",
        "_num_steps",
        "_pool",
        "_tightest",
        "_token",
        "members",
    )

    def __init__(self, pool: BlockPool, members: Sequence[EngineRequest], left: Sequence[int]) -> None:
        """Begin to pass steps of a batch. ``left``: how many tokens each may generate before one ends it, one at least;
        see `steady_batch`.
        """
        self.members = members
        self._pool = pool
        self._left = left
        self._num_steps = min(left)
        self._num_passed = 0
        self._token = 0  # that was sampled in all steps that are not booked
        self._booked = [0] * len(members)  # of the steps passed, by member
        self._num_booked = 0  # their sum
        self._context = sum([len(request.tokens) for request in members])
        self._filling: list[list[int]] = [[] for _ in range(pool.block_size)]  # members: see `_filled`
        for index, request in enumerate(members):
            self._filling[-request.num_computed % pool.block_size].append(index)
        self._is_new = None in [request.published for request in members]
        self._tightest: list[_Tightest] | None = None

    def __repr__(self) -> str:
        return f"<SteadyBatch of {len(self.members)}, {self._num_passed} of {self._num_steps} steps passed>"

    @property
    def num_unbooked(self) -> int:
        """Tokens that were sampled and are not in their sequences yet."""
        return len(self.members) * self._num_passed - self._num_booked

    def num_steps_left(self) -> int:
        """Return how many more can be passed before one ends and as long as the pool has blocks for them all."""
        pool, num_members, num_steps = self._pool, len(self.members), self._num_steps - self._num_passed
        if num_steps < 1 or pool.can_allocate(num_members * (num_steps // pool.block_size + 1)):
            return max(0, num_steps)
        self.book()
        return bisect_left(range(num_steps), True, key=lambda passed: not self._has_blocks(passed + 1))

    def _has_blocks(self, num_steps: int) -> bool:
        """Whether the pool has blocks for so many steps and the one after them. All tokens are booked."""
        missing = sum([_num_missing_blocks(request, num_steps, self._pool) for request in self.members])
        return self._pool.can_allocate(missing)

    def pass_steps(self, num_steps: int, token: int) -> None:
        """Note that so many steps (at most `num_steps_left`) have sampled ``token`` for each member, and the next one
        runs.
        """
        for index in self._draw(num_steps, token):
            self._fill(index)

    def load(self) -> StepLoad:
        """Return what the running step computes."""
        num_members = len(self.members)
        return StepLoad((), num_members, self._context + num_members * self._num_passed)

    def finish(self, token: int) -> list[EngineRequest]:
        """The running step has sampled ``token``, and is the last one. Whom that has ended."""
        full = self._draw(1, token)
        self.book()
        for index in full:
            self.members[index].publish_full_blocks(self._pool)
        passed = self._num_passed
        if passed <= self._num_steps:
            return []
        return [member for member, left in zip(self.members, self._left, strict=True) if left < passed]

    def _draw(self, num_steps: int, token: int) -> Iterable[int]:
        """So many more are passed. Who has filled a block, or has told of none yet."""
        if token != self._token:
            self.book()
            self._token = token
        before = self._num_passed
        self._num_passed = before + num_steps
        if self._is_new:
            self._is_new = False
            return range(len(self.members))
        return self._filled(before + 1, self._num_passed)

    def _filled(self, first: int, last: int) -> list[int]:
        """Return who fills a block in those steps: the same ones at every count of steps with the same rest."""
        size = self._pool.block_size
        if first == last:
            return self._filling[last % size]
        steps = range(first, min(last, first + size - 1) + 1)
        return sorted([index for step in steps for index in self._filling[step % size]])

    def _fill(self, index: int) -> None:
        """Book what passed of one request. Its next token needs a block, and others may find those that are full."""
        request, pool, passed = self.members[index], self._pool, self._num_passed
        num_steps = passed - self._booked[index]
        request.tokens += [self._token] * num_steps
        request.num_computed += num_steps
        self._booked[index] = passed
        self._num_booked += num_steps
        missing = -(-len(request.tokens) // pool.block_size) - len(request.blocks)
        if missing > 0:
            request.blocks += pool.allocate(missing)
        request.publish_full_blocks(pool)

    def book(self) -> None:
        """Let the members have all their tokens."""
        passed, members = self._num_passed, self.members
        if self._num_booked == len(members) * passed:
            return
        for request, booked in zip(members, self._booked, strict=True):
            if num_steps := passed - booked:
                request.tokens += [self._token] * num_steps
                request.num_computed += num_steps
        self._booked = [passed] * len(members)
        self._num_booked = len(members) * passed

    def summary(self, now: float, cost: DecodeCost) -> DecodeSummary:
        """Summarise the decodes as they are, be they booked or not. ``cost``: of a step of one of them alone."""
        while True:
            tightest = self._find_tightest() if self._tightest is None else self._tightest
            self._tightest = None if self._give_up(tightest, now, cost) else tightest
            if self._tightest is not None:
                break
        passed, num_members = self._num_passed, len(self.members)
        return DecodeSummary(
            num_members,
            self._context + num_members * passed,
            min([one.first_token_at + (one.num_generated + passed) * one.promise_s for one in tightest], default=inf),
            min([one.promise_s for one in tightest], default=inf),
        )

    def _find_tightest(self) -> "list[_Tightest]":
        """Of each promise that can be kept, who is late first, now and after any number of steps."""
        tightest: dict[float, _Tightest] = {}
        late_at: dict[float, float] = {}
        for index, request in enumerate(self.members):
            first, spec = request.first_token_at, request.spec
            assert first is not None, "who decodes steadily has a first token"
            if request.is_hopeless:
                continue
            num_generated, promise_s = len(request.tokens) - len(spec.prompt) - self._booked[index], spec.slo_tpot_s
            until = first + num_generated * promise_s
            if until < late_at.get(promise_s, inf):
                late_at[promise_s] = until
                tightest[promise_s] = _Tightest(promise_s, first, num_generated, index)
        return list(tightest.values())

    def _give_up(self, tightest: "list[_Tightest]", now: float, cost: DecodeCost) -> bool:
        """Whether one of these cannot keep its promise any more, as `Service.decodes` has it."""
        has_given_up, late_at = False, now + decode_step_s(cost, 1, 1)
        for one in tightest:
            promise_s, request = one.promise_s, self.members[one.member]
            num_unbooked = self._num_passed - self._booked[one.member]
            until = one.first_token_at + (one.num_generated + self._num_passed) * promise_s
            if until >= late_at:
                continue
            alone_s = decode_step_s(cost, 1, len(request.tokens) + num_unbooked)
            num_left = request.num_left - num_unbooked
            if is_beyond_repair(until - now - alone_s, promise_s, num_left, alone_s):
                request.is_hopeless = has_given_up = True
        return has_given_up


def steady_batch(pool: BlockPool, members: Sequence[EngineRequest]) -> SteadyBatch | None:
    """Return the batch of the running step's decodes, if nobody can join them. None if one would end with it."""
    left = [_num_before_end(request) for request in members]
    return SteadyBatch(pool, members, left) if left and min(left) > 0 else None


def num_steps_to_delivery(members: Sequence[EngineRequest], deliver_every: int) -> int:
    """Return after how many steps tokens of the first of them are to be delivered; 1 at least."""
    # `EngineRequest.num_held`, spelt out: it is asked for every member of every batch
    held = [
        len(one.tokens) - len(one.spec.prompt) - one.num_delivered if one.has_delivered else deliver_every
        for one in members
    ]
    return max(1, deliver_every - max(held))


def _num_before_end(request: EngineRequest) -> int:
    """How many tokens it can generate before one ends it."""
    sampling, num_tokens = request.spec.sampling, len(request.tokens)
    num_generated = num_tokens - len(request.spec.prompt)
    if (
        num_tokens - request.num_computed != 1
        or request.first_token_at is None
        or request.is_over
        or request.transfer is not None
        or not sampling.ignore_eos
        or sampling.stop_token_ids
        or sampling.logprobs is not None
        or request.spec.adapter is not None  # what its steps cost depends on who else is there
        or request.drafter is not None  # it may draw more than one
    ):
        return 0
    left = min(sampling.max_tokens - num_generated, request.context_limit - num_tokens)
    if request.granted is not None:
        left = min(left, request.granted - num_tokens)
    return left - 1 if request.slice_tokens is None else min(left, request.num_left_here) - 1


def _num_missing_blocks(request: EngineRequest, num_steps: int, pool: BlockPool) -> int:
    """For the step that runs after ``num_steps``."""
    return max(0, -(-(len(request.tokens) + num_steps) // pool.block_size) - len(request.blocks))
