"""Estimates how long a slice of a static batch takes, and how many requests fit (SCLS, sections 4.2 and 4.3).

A static batch pads its prompts to the longest. So its time and its memory depend on three numbers: how many requests
(N), how long the longest input is (L), and how many iterations (S). A slice fixes the third, which otherwise nobody
knows before the end. Times come from the cost models that engines publish: with no tables and no quadratic term they
are the paper's equations 3 and 4.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engines.costs.linear import attended_tokens, requests_s, tokens_s
from mesh.wire.status import DecodeCost, PrefillCost

ZETA = 0.9  # of the KV memory that batches may fill: the rest is lost to fragments (equation 9)

Rules = Sequence[tuple[int, int]]


class SliceEstimator:
    """Estimates slices of one service on one engine: ``num_slots`` tokens of KV (``M_ava / Delta``), slices of
    ``slice_tokens``.

    ``rules`` (tokens, requests) stand in for the memory of engines that do not use it flexibly (algorithm 2): of
    requests with so many tokens or less, input and slice, so many may share a batch. The last rule is for all others.
    """

    def __init__(
        self,
        prefill: PrefillCost,
        decode: DecodeCost,
        num_slots: int,
        slice_tokens: int,
        zeta: float = ZETA,
        rules: Rules = (),
    ) -> None:
        self.slice_tokens = slice_tokens
        self._prefill = prefill
        self._decode = decode
        self._rules = rules
        self._capacity = int(zeta * num_slots)

    def __repr__(self) -> str:
        return f"<SliceEstimator of {self.slice_tokens} tokens in {self._capacity}>"

    def most_requests(self, input_tokens: int) -> int:
        """Return how many requests fit. ``N_max`` (equation 8), but one at least: what does not fit alone is for the
        engine to refuse.
        """
        num_tokens = input_tokens + self.slice_tokens
        fitting = max(1, self._capacity // num_tokens)
        if not self._rules:
            return fitting
        return min(fitting, next((most for tokens, most in self._rules if num_tokens <= tokens), self._rules[-1][1]))

    def serving_s(self, num_requests: int, input_tokens: int) -> float:
        """Return the predicted seconds of a slice. ``T_serve(N, L, S)`` (equations 1 and 2), the sum over the
        iterations in closed form.
        """
        decode, steps = self._decode, self.slice_tokens
        prompts_s = self._prompts_s(num_requests * input_tokens)
        attention_s = num_requests * self._prefill.per_token_context_s * attended_tokens(input_tokens, 0)
        contexts = steps * input_tokens + steps * (steps + 1) / 2  # of one request, summed over the iterations
        per_context_s = decode.per_context_token_s * num_requests + decode.per_mean_context_token_s
        return prompts_s + attention_s + steps * requests_s(decode, num_requests) + per_context_s * contexts

    def _prompts_s(self, num_tokens: int) -> float:
        """All but attention, of so many padded tokens, in as few iterations as the engine's chunks allow."""
        chunk_tokens = self._prefill.chunk_tokens
        if not chunk_tokens or num_tokens <= chunk_tokens:
            return tokens_s(self._prefill, num_tokens)
        num_full, rest = divmod(num_tokens, chunk_tokens)
        rest_s = tokens_s(self._prefill, rest) if rest else 0.0
        return num_full * tokens_s(self._prefill, chunk_tokens) + rest_s

    # --- the same for many sizes at once ------------------------------------------------------------------------------

    def column(self, input_tokens: int, most: int) -> NDArray[np.float64]:
        """Return the seconds of all batch sizes. ``T_serve`` of 1, 2, ... ``most`` requests (at most `most_requests`)
        of that input length.
        """
        decode, steps = self._decode, self.slice_tokens
        contexts = steps * input_tokens + steps * (steps + 1) / 2
        per_request_s = self._prefill.per_token_context_s * attended_tokens(input_tokens, 0)
        per_request_s += decode.per_context_token_s * contexts
        if most * input_tokens >= len(self._prompts_table):  # one that does not fit alone
            return np.array([self.serving_s(1 + index, input_tokens) for index in range(most)])
        prompts_s = self._prompts_table[input_tokens : most * input_tokens + 1 : input_tokens]
        column = prompts_s + self._steps_table[:most]
        column += self._sizes[:most] * per_request_s
        column += decode.per_mean_context_token_s * contexts
        return column

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        return np.arange(1.0, self._capacity // (1 + self.slice_tokens) + 2)

    @cached_property
    def _steps_table(self) -> NDArray[np.float64]:
        """Of all iterations of 1, 2, ... requests, but for their contexts."""
        decode = self._decode
        if not decode.table:
            return self.slice_tokens * (decode.fixed_s + decode.per_request_s * self._sizes)
        return self.slice_tokens * _interpolate(decode.table, self._sizes, decode.per_request_s)

    @cached_property
    def _prompts_table(self) -> NDArray[np.float64]:
        """`_prompts_s` of 0, 1, ... tokens, as many as fit."""
        prefill, numbers = self._prefill, np.arange(float(self._capacity + 1))
        full_s, rests = np.zeros(len(numbers)), numbers
        if prefill.chunk_tokens and prefill.chunk_tokens <= self._capacity:
            full_s = (numbers // prefill.chunk_tokens) * tokens_s(prefill, prefill.chunk_tokens)
            rests = numbers % prefill.chunk_tokens
        if prefill.table:
            rests_s = _interpolate(prefill.table, rests, prefill.per_token_s)
        else:
            rests_s = prefill.fixed_s + prefill.per_token_s * rests
        return np.add(full_s, np.where(rests > 0, rests_s, 0.0))


def _interpolate(
    table: tuple[tuple[int, float], ...], numbers: NDArray[np.float64], beyond_s: float
) -> NDArray[np.float64]:
    """As `engines.costs.linear` does it for one number."""
    sizes, times = np.array(table).T
    within: NDArray[np.float64] = np.interp(numbers, sizes, times)
    beyond: NDArray[np.float64] = beyond_s * np.maximum(numbers - sizes[-1], 0.0)
    return np.add(within, beyond)
