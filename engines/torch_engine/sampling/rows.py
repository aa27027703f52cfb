"""Tokens for rows of logits, with log-probabilities where they are asked for."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from engines.scheduling.batch import Draw, Unsampled
from engines.torch_engine.sampling.logprobs import of_tokens
from engines.torch_engine.sampling.sampler import Sampler
from mesh.wire.requests import TokenLogprobs


class SampledToken(NamedTuple):
    """The outcome of sampling for one row. ``token`` is None where none could be sampled: ``unsampled`` says why."""

    token: int | None
    logprobs: TokenLogprobs | None = None
    unsampled: Unsampled | None = None


def sample_tokens(sampler: Sampler, logits: Tensor, draws: Sequence[Draw]) -> list[SampledToken]:
    """One for each row of ``logits`` [rows, vocabulary] (float32; changed in place)."""
    counts = [draw.sampling.logprobs for draw in draws]
    if all(count is None for count in counts):
        return [_sampled(token, None) for token in sampler.draw(logits, draws)]
    tokens = sampler.draw(logits.clone(), draws)
    known = [0 if isinstance(token, Unsampled) else token for token in tokens]
    each = of_tokens(logits, known, [count or 0 for count in counts])
    return [
        _sampled(token, None if count is None else own) for token, own, count in zip(tokens, each, counts, strict=True)
    ]


def _sampled(token: int | Unsampled, logprobs: TokenLogprobs | None) -> SampledToken:
    return SampledToken(None, None, token) if isinstance(token, Unsampled) else SampledToken(token, logprobs)
