"""Decode steps that repeat: while nothing new happens, what many of them do can be done in one go."""

from collections.abc import Sequence as Shares

from engines.blocks import BlockPool
from engines.scheduler import ServiceQueue, Share
from engines.sequence import Sequence

MAX_STEPS = 256  # so that tokens are not held back for long


def num_steady_steps(queue: ServiceQueue, shares: Shares[Share], num_passed: int) -> int:
    """How many steps like the running one can end, one after the other, without anything to decide or to say.

    That is: all that runs is decoding and has delivered all tokens but those of the ``num_passed`` steps before, nobody
    waits, nobody would end, and the pool has blocks for all. The step after those must be finished and planned anew.
    """
    if queue.waiting or queue.unreserved or len(queue.running) != len(shares):
        return 0
    sequences = [share.sequence for share in shares]
    num_steps = min([sequence.num_left - 1 for sequence in sequences], default=0)
    num_steps = min(num_steps, MAX_STEPS - num_passed)
    if num_steps < 1 or not all(_is_steady(sequence, num_passed) for sequence in sequences):
        return 0
    missing = sum(_num_missing_blocks(sequence, num_steps, queue.pool) for sequence in sequences)
    return num_steps if queue.pool.can_allocate(missing) else 0


def pass_steps(pool: BlockPool, shares: Shares[Share], num_steps: int, token: int) -> None:
    """``num_steps`` (at most `num_steady_steps`) have drawn ``token`` for each sequence, and the next step runs."""
    for share in shares:
        sequence = share.sequence
        missing = _num_missing_blocks(sequence, num_steps, pool)
        if missing:
            sequence.blocks += pool.allocate(missing)
        sequence.tokens += [token] * num_steps
        sequence.num_computed += num_steps
        sequence.publish_full_blocks(pool)


def _is_steady(sequence: Sequence, num_passed: int) -> bool:
    sampling = sequence.spec.sampling
    return (
        sequence.is_decoding
        and not sequence.is_over
        and sequence.num_generated - sequence.num_delivered == num_passed
        and sampling.ignore_eos
        and not sampling.stop_token_ids
        and sampling.logprobs is None
    )


def _num_missing_blocks(sequence: Sequence, num_steps: int, pool: BlockPool) -> int:
    """For the step that runs after ``num_steps``."""
    return max(0, pool.blocks_for(len(sequence.tokens) + num_steps) - len(sequence.blocks))
