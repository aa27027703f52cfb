"""Learns what a server's prefills and decode steps cost from what its clients see: first tokens, and paces of answers.

Nothing is known at first, not even whether it computes on a laptop or on eight GPUs. The first measurements are fitted
as `mesh profile` fits steps (`engines.costs.fitting`), again when there are twice as many; in between, a filter follows
each of them (`engines.costs.learning`), as on our own engines. Measurements of like sizes are kept together, the newest
of each. A fit takes those of answers, and the median one of prompts, which have more sizes: it takes milliseconds
however long a server is in use.

Prompts share iterations with decodes, so both costs are fitted at once. An iteration is taken to cost

    f + r * decodes + c * their context + [g if it has prompts] + b * prompt tokens + q * pairs attended + k * cached

A first token took one iteration or more, of which the last one had its prompt in it. Tokens of an answer took one
each, and some of those had prompts of others. Without decodes, a prompt's fixed part is f + g; beside others, only g.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from engines.costs.fitting import robust_fit
from engines.costs.learning import LearntCost
from engines.costs.linear import attended_tokens, decode_step_s, prefill_s, requests_s, tokens_s
from engines.costs.step_cost import MixedCost, StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost

# One mid-size GPU and an 8B model, roughly.
GUESS: Final = StepCost(PrefillCost(0.05, 1e-4), DecodeCost(0.02, 5e-4), MixedCost(5e-4, 0.0))
FIRST_FIT: Final = 4  # measurements of a kind
NEXT_FIT: Final = 2.0  # times as many as at the last one
LAST_FIT: Final = 512  # after which each so many measurements
STEPS_OF_SIZE: Final = 2  # sizes in a doubling that are kept apart
NEWEST: Final = 7  # measurements of a size
SHORTEST_S: Final = 1e-6
ATTENTION_FROM: Final = 1024  # tokens of the longest prompt: among shorter ones attention is not told from the rest
LEAST_PART: Final = 0.02  # of what was measured, that is left for a cost when the other one is taken off


class PromptsSeen(NamedTuple):
    """Prompts of one iteration: ``num_tokens``, of which ``num_cached`` were there, ``elapsed_s`` after they could
    begin. They took ``num_steps`` iterations, beside ``num_running`` decodes with ``context_tokens`` in all.
    """

    num_tokens: int
    num_cached: int
    elapsed_s: float
    num_running: int = 0
    context_tokens: int = 0
    num_steps: int = 1

    @property
    def num_new(self) -> int:
        return max(1, self.num_tokens - self.num_cached)


class DecodesSeen(NamedTuple):
    """One of ``num_running`` requests had ``num_tokens`` in ``elapsed_s``. Meanwhile ``num_prefills`` iterations
    computed ``prompt_tokens`` of prompts.
    """

    num_tokens: int
    elapsed_s: float
    num_running: float
    context_tokens: int
    num_prefills: int = 0
    prompt_tokens: int = 0


S = TypeVar("S", PromptsSeen, DecodesSeen)


@dataclass(slots=True)
class _Sizes(Generic[S]):
    """The newest measurements by size."""

    by_size: dict[tuple[int, ...], deque[S]] = field(default_factory=dict)
    num_taken: int = 0
    fits_at: float = FIRST_FIT

    def add(self, size: tuple[int, ...], measured: S) -> bool:
        """Return whether it is time for a fit."""
        kept = self.by_size.setdefault(size, deque(maxlen=NEWEST))
        kept.append(measured)
        self.num_taken += 1
        if self.num_taken < self.fits_at:
            return False
        self.fits_at = min(self.num_taken * NEXT_FIT, self.num_taken + LAST_FIT)
        return True

    def newest(self) -> Iterable[S]:
        return [one for kept in self.by_size.values() for one in kept]


class ServerCosts:
    """What one service costs on one server. Lengths are in the tokens that the gateway counts, whatever these are.

    ``initial``: from a profile, which is only corrected from then on; None: nothing is known.
    """

    def __init__(self, initial: StepCost | None = None) -> None:
        self._is_fitted = initial is None
        self._learnt = LearntCost(initial or GUESS)
        self._prefills, self._decodes = _Sizes[PromptsSeen](), _Sizes[DecodesSeen]()
        self._has_prefill = self._has_decode = initial is not None

    def __repr__(self) -> str:
        return f"<ServerCosts {self._learnt!r}>"

    @property
    def is_learnt(self) -> bool:
        """Return whether both costs come from measurements or a profile: before that they are guesses."""
        return self._has_prefill and self._has_decode

    @property
    def current(self) -> StepCost:
        return self._learnt.current

    @property
    def prefill_beside(self) -> PrefillCost:
        """What prompts add to an iteration that is there anyhow, as others decode or have prompts in it."""
        cost = self._learnt.current
        shared_s = _shared_s(cost)
        table = tuple([(size, time_s - shared_s) for size, time_s in cost.prefill.table])
        return msgspec.structs.replace(cost.prefill, fixed_s=max(0.0, cost.prefill.fixed_s - shared_s), table=table)

    @property
    def prefill_error(self) -> float | None:
        """90th percentile of |measured / predicted - 1| of late; None: too few."""
        return self._learnt.prefill_error if self._has_prefill else None

    @property
    def decode_error(self) -> float | None:
        """The same of decodes."""
        return self._learnt.decode_error if self._has_decode else None

    def first_token(self, seen: PromptsSeen) -> None:
        """Prompts had their first tokens."""
        elapsed_s = _of_one_step(seen, self._learnt.current)
        if seen.elapsed_s < SHORTEST_S:
            return
        new = seen.num_new
        self._learnt.observe(StepLoad([(new, seen.num_cached)], seen.num_running, seen.context_tokens), elapsed_s)
        size = _size(new), seen.num_cached.bit_length(), seen.num_running.bit_length()
        if self._prefills.add(size, seen) and self._is_fitted:
            was_learnt, self._has_prefill = self.is_learnt, True
            self._refit(was_learnt)

    def decoded(self, seen: DecodesSeen) -> None:
        """An answer went on."""
        if seen.elapsed_s < SHORTEST_S * max(1, seen.num_tokens) or seen.num_running < 1:
            return
        number, context, step_s = _decode_alone(seen, self._learnt.current)
        self._learnt.observe(StepLoad((), number, context), step_s)
        if self._decodes.add((_size(number), context.bit_length()), seen) and self._is_fitted:
            was_learnt, self._has_decode = self.is_learnt, True
            self._refit(was_learnt)

    def _refit(self, was_learnt: bool) -> None:
        """Errors of guesses are forgotten with them."""
        errors, before = self._learnt, self._learnt.current
        prompts = [sorted(kept, key=_elapsed_s)[len(kept) // 2] for kept in self._prefills.by_size.values()]
        attends = max([one.num_new for one in prompts], default=0) >= ATTENTION_FROM
        rows = [_row_of_prompts(one, attends=attends) for one in prompts]
        rows += [_row_of_decodes(one, attends=attends) for one in self._decodes.newest()]
        f, r, c, g, b, q, k = robust_fit([terms for terms, _ in rows], [elapsed_s for _, elapsed_s in rows])
        prefill = PrefillCost(f + g, b, q, k) if self._has_prefill else before.prefill
        decode = DecodeCost(f, r, c) if self._has_decode else before.decode
        self._learnt = LearntCost(
            StepCost(prefill, decode, MixedCost(decode.per_request_s, decode.per_context_token_s))
        )
        if was_learnt:
            self._learnt.recall(errors)


_elapsed_s = attrgetter("elapsed_s")
Terms = tuple[float, float, float, float, float, float, float]  # what f, r, c, g, b, q and k are multiplied by


def _row_of_prompts(seen: PromptsSeen, *, attends: bool) -> tuple[Terms, float]:
    """What they were, and the seconds that they took. ``attends``: pairs of tokens count."""
    steps, new, cached = seen.num_steps, seen.num_new, seen.num_cached
    decodes = steps, steps * seen.num_running, steps * seen.context_tokens
    return (*decodes, 1, new, attends * attended_tokens(new, cached), cached), seen.elapsed_s


def _row_of_decodes(seen: DecodesSeen, *, attends: bool) -> tuple[Terms, float]:
    """Make the row of what was seen of decodes. Prompts are taken to be of one length."""
    steps, number, new = seen.num_tokens, seen.num_prefills, seen.prompt_tokens
    decodes = steps, steps * seen.num_running, steps * seen.context_tokens
    attended = number * attended_tokens(new // number, 0) if number else 0.0
    return (*decodes, number, new, attends * attended, 0), seen.elapsed_s


def _shared_s(cost: StepCost) -> float:
    """The part of a prompt's iteration that decodes alone would take as well."""
    return min(requests_s(cost.decode, 1), tokens_s(cost.prefill, 1))


def _of_one_step(seen: PromptsSeen, cost: StepCost) -> float:
    """The last of its iterations, as the others had only decodes in them."""
    others_s = (seen.num_steps - 1) * decode_step_s(cost.decode, seen.num_running, seen.context_tokens)
    return max(LEAST_PART * seen.elapsed_s, seen.elapsed_s - others_s)


def _decode_alone(seen: DecodesSeen, cost: StepCost) -> tuple[int, int, float]:
    """Decodes, their context, and seconds of a step without prompts."""
    prompts_s = 0.0
    if seen.num_prefills:
        each_s = prefill_s(cost.prefill, max(1, seen.prompt_tokens // seen.num_prefills)) - _shared_s(cost)
        prompts_s = seen.num_prefills * max(0.0, each_s)
    step_s = max(LEAST_PART * seen.elapsed_s, seen.elapsed_s - prompts_s) / max(1, seen.num_tokens)
    return round(seen.num_running), seen.context_tokens, step_s


def _size(number: int) -> int:
    """Equal for numbers within half a doubling; small ones have one each."""
    shift = max(0, number.bit_length() - STEPS_OF_SIZE)
    return STEPS_OF_SIZE * shift + (number >> shift)
