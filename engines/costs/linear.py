"""Predicts what prefills and decode steps cost from published coefficients.

Both costs are linear in known features, so that routers can predict any request (Tropical: the prefill time is a
function of the lengths alone). Aladdin's equations 2 and 3 and SCLS's 3 and 4 are special cases.
`engines.costs.fitting` finds the coefficients, `engines.costs.learning` keeps them true, `engines.costs.scaling`
derives them for other hardware.
"""

from bisect import bisect_left

from mesh.wire.status import DecodeCost, PrefillCost


def attended_tokens(new_tokens: int, cached_tokens: int) -> float:
    """Pairs of a new token and a token that it attends to."""
    return new_tokens * (cached_tokens + new_tokens / 2)


def prefill_s(cost: PrefillCost, new_tokens: int, cached_tokens: int = 0) -> float:
    """Predicted seconds to compute ``new_tokens`` prompt tokens after ``cached_tokens``; 0 for nothing to compute."""
    if new_tokens <= 0:
        return 0.0
    attention_s = cost.per_token_context_s * new_tokens * (cached_tokens + new_tokens / 2)
    chunk_tokens = cost.chunk_tokens
    if not chunk_tokens or new_tokens <= chunk_tokens:
        return tokens_s(cost, new_tokens) + attention_s + cost.per_cached_token_s * cached_tokens
    num_full = (new_tokens - 1) // chunk_tokens
    reread = (num_full + 1) * cached_tokens + chunk_tokens * num_full * (num_full + 1) / 2
    last_s = tokens_s(cost, new_tokens - num_full * chunk_tokens)
    return num_full * tokens_s(cost, chunk_tokens) + last_s + attention_s + cost.per_cached_token_s * reread


def tokens_s(cost: PrefillCost, num_tokens: int) -> float:
    """The part of a chunk's time that its number of tokens decides: everything but attention."""
    if cost.table:
        return _interpolate(cost.table, num_tokens, cost.per_token_s)
    return cost.fixed_s + cost.per_token_s * num_tokens


def decode_step_s(cost: DecodeCost, num_requests: int, context_tokens: int) -> float:
    """Predicted seconds of one decode step; 0 for no requests."""
    if num_requests <= 0:
        return 0.0
    context_s = (
        cost.per_context_token_s * context_tokens + cost.per_mean_context_token_s * context_tokens / num_requests
    )
    return requests_s(cost, num_requests) + context_s


def requests_s(cost: DecodeCost, num_requests: int) -> float:
    """The part of a decode step's time that its number of requests decides: everything but attention."""
    if cost.table:
        return _interpolate(cost.table, num_requests, cost.per_request_s)
    return cost.fixed_s + cost.per_request_s * num_requests


def serving_s(prefill: PrefillCost, decode: DecodeCost, num_requests: int, prompt_tokens: int, num_steps: int) -> float:
    """Predicted seconds of a static batch of equal prompts and then ``num_steps`` decode steps (SCLS, equation 1).

    The sum of its equation 4 over the steps in closed form; prompts are computed one after the other.
    """
    contexts = num_steps * prompt_tokens + num_steps * (num_steps + 1) / 2  # of one request, summed over the steps
    per_context_s = decode.per_context_token_s * num_requests + decode.per_mean_context_token_s
    decodes_s = num_steps * requests_s(decode, num_requests) + per_context_s * contexts if num_requests else 0.0
    return num_requests * prefill_s(prefill, prompt_tokens) + decodes_s


def _interpolate(table: tuple[tuple[int, float], ...], number: int, beyond_s: float) -> float:
    """On the line through the table's points; level before its first, ``beyond_s`` for each after its last."""
    index = bisect_left(table, (number,))
    if index == 0:
        return table[0][1]
    before, before_s = table[index - 1]
    if index == len(table):
        return before_s + beyond_s * (number - before)
    after, after_s = table[index]
    return before_s + (after_s - before_s) * (number - before) / (after - before)
