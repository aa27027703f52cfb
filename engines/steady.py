"""Decode steps that repeat: while nothing new happens, what many of them do can be done in one go."""

from collections.abc import Sequence as Shares

from engines.blocks import BlockPool
from engines.scheduler import ServiceQueue, Share
from engines.sequence import Sequence


def num_steady_steps(queue: ServiceQueue, shares: Shares[Share]) -> int:
    """How many steps like the running one can end, one after the other, without anything to decide.

    That is: all that runs is decoding, nobody waits, nobody would end, and the pool has blocks for all. The step after
    those must be finished and planned anew.
    """
    if queue.waiting or queue.unreserved or len(queue.running) != len(shares):
        return 0
    return num_steps_of_batch(queue.pool, shares)


def num_steps_of_batch(pool: BlockPool, shares: Shares[Share]) -> int:
    """The same for a batch that nobody can join."""
    num_steps = min([_num_before_end(share.sequence) for share in shares], default=0)
    if num_steps < 1:
        return 0
    if pool.can_allocate(len(shares) * (num_steps // pool.block_size + 1)):
        return num_steps
    missing = sum([_num_missing_blocks(share.sequence, num_steps, pool) for share in shares])
    return num_steps if pool.can_allocate(missing) else 0


def num_steps_to_delivery(shares: Shares[Share], deliver_every: int) -> int:
    """After how many steps tokens of the first of them are to be delivered; 1 at least."""
    return max(1, min([_num_to_hold(share.sequence, deliver_every) for share in shares]))


def pass_steps(pool: BlockPool, shares: Shares[Share], num_steps: int, token: int) -> None:
    """``num_steps`` (at most `num_steady_steps`) have drawn ``token`` for each sequence, and the next step runs."""
    drawn, size = [token] * num_steps, pool.block_size
    for share in shares:
        sequence = share.sequence
        sequence.tokens += drawn
        missing = -(-len(sequence.tokens) // size) - len(sequence.blocks)
        if missing > 0:
            sequence.blocks += pool.allocate(missing)
        # `Sequence.advance`, spelt out: no other line of a simulation is run as often
        num_before = sequence.num_computed
        sequence.num_computed = num_computed = num_before + num_steps
        if num_computed // size > num_before // size or sequence.published is None:
            sequence.publish_full_blocks(pool)


def _num_to_hold(sequence: Sequence, deliver_every: int) -> int:
    return deliver_every - sequence.num_held if sequence.has_delivered else 1


def _num_before_end(sequence: Sequence) -> int:
    """How many tokens it can draw before one ends it."""
    sampling, num_tokens = sequence.spec.sampling, len(sequence.tokens)
    num_generated = num_tokens - len(sequence.spec.prompt)
    if (
        num_tokens - sequence.num_computed != 1
        or sequence.first_token_at is None
        or sequence.is_over
        or sequence.transfer is not None
        or not sampling.ignore_eos
        or sampling.stop_token_ids
        or sampling.logprobs is not None
    ):
        return 0
    left = min(sampling.max_tokens - num_generated, sequence.context_limit - num_tokens)
    return left - 1 if sequence.slice_tokens is None else min(left, sequence.num_left_here) - 1


def _num_missing_blocks(sequence: Sequence, num_steps: int, pool: BlockPool) -> int:
    """For the step that runs after ``num_steps``."""
    return max(0, -(-(len(sequence.tokens) + num_steps) // pool.block_size) - len(sequence.blocks))
