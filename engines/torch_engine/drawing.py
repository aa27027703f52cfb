"""Tokens for rows of logits, with log-probabilities where they are asked for."""

from collections.abc import Sequence

from torch import Tensor

from engines.batch import Draw
from engines.torch_engine.logprobs import of_tokens
from engines.torch_engine.sampling import Sampler
from mesh.messages import TokenLogprobs


def draw_tokens(sampler: Sampler, logits: Tensor, draws: Sequence[Draw]) -> list[tuple[int, TokenLogprobs | None]]:
    """One for each row of ``logits`` [rows, vocabulary] (float32; changed in place)."""
    counts = [draw.sampling.logprobs for draw in draws]
    if all(count is None for count in counts):
        return [(token, None) for token in sampler.draw(logits, draws)]
    tokens = sampler.draw(logits.clone(), draws)
    each = of_tokens(logits, tokens, [count or 0 for count in counts])
    return [(own.token, None if count is None else own) for own, count in zip(each, counts, strict=True)]
