"""Costs as people read them: formulas in milliseconds."""

from engines.costs.profiles import EngineProfile
from engines.costs.step_cost import MixedCost
from mesh.wire.status import DecodeCost, PrefillCost

MIB = 2**20
LETTERS = (
    "n: tokens of a prompt (for KV, of prompt and answer); c: tokens cached before it, or the context of all decodes; "
    "b: requests that decode; p: prompts"
)


def prefill_formula(cost: PrefillCost) -> str:
    """Write the formula for n tokens after c cached ones."""
    terms = [_base(cost.table, cost.fixed_s, cost.per_token_s, "n")]
    terms += _term(cost.per_token_context_s, "n (c + n/2)") + _term(cost.per_cached_token_s, "c")
    return " + ".join(terms)


def decode_formula(cost: DecodeCost) -> str:
    """Write the formula for b requests with c tokens of context in all."""
    terms = [_base(cost.table, cost.fixed_s, cost.per_request_s, "b")]
    terms += _term(cost.per_context_token_s, "c") + _term(cost.per_mean_context_token_s, "c/b")
    return " + ".join(terms)


def mixed_formula(cost: MixedCost | None) -> str:
    """Write the formula for b requests with c tokens of context in all beside p prompts."""
    if cost is None:
        return "a decode is one token more"
    terms = _term(cost.per_decode_s, "b") + _term(cost.per_context_token_s, "c") + _term(cost.per_prompt_s, "(p - 1)")
    return "prefill + " + " + ".join(terms or ["0"])


def kv_formula(profile: EngineProfile) -> str:
    """Write the formula for a request with n tokens (Aladdin, equation 1)."""
    capacity = profile.kv_memory_bytes // profile.kv_bytes_per_token
    return (
        f"KV bytes: {profile.kv_bytes_per_token} n + {profile.kv_bytes_per_request}; "
        f"{profile.kv_memory_bytes / MIB:.0f} MiB hold {capacity} tokens"
    )


def _base(table: tuple[tuple[int, float], ...], fixed_s: float, slope_s: float, variable: str) -> str:
    points = ", ".join(f"{size}: {1000 * time_s:.4g}" for size, time_s in table)
    return f"t({variable}) ({points})" if points else f"{1000 * fixed_s:.4g} + {1000 * slope_s:.4g} {variable}"


def _term(coefficient_s: float, variables: str) -> list[str]:
    return [f"{1000 * coefficient_s:.3g} {variables}"] if coefficient_s else []
