"""Rejects what no engine can compute, whoever asks. Gateways check more, and say what their clients' words mean."""

from collections.abc import Iterable

from engines.images.validity import fault_of_images
from engines.scheduling.service import Service
from mesh.wire.requests import RequestSpec


def fault_of(spec: RequestSpec, service: Service) -> str | None:
    """Return why the request cannot be computed by any engine of the service: a token that the model does not have
    would be an index beyond its tables. None: it can.
    """
    if not spec.prompt:
        return "the prompt has no token"
    if (fault := _fault_of_kind(spec, service)) is not None:
        return fault
    if spec.num_tokens >= service.limit_of(spec):
        need = "exceed" if service.pools else "leave no room for an answer in"
        return f"{spec.num_tokens} tokens {need} a context of {service.context_limit}"
    if service.vocab_size is None:
        return None
    sampling = spec.sampling
    for what, tokens in (
        ("the prompt", spec.prompt),
        ("the answer so far", spec.generated),
        ("stop_token_ids", sampling.stop_token_ids),
        ("logit_bias", sampling.logit_bias),
    ):
        if (token := _first_beyond(tokens, service.vocab_size)) is not None:
            return f"{what} has token {token}, and the model's vocabulary has {service.vocab_size}"
    return None


def _fault_of_kind(spec: RequestSpec, service: Service) -> str | None:
    """It wants what the service does not make."""
    if (spec.pooling is not None) != service.pools:
        return "the service makes vectors, and no tokens" if service.pools else "the service makes no vectors"
    if spec.sampling.max_tokens < 1:
        return "max_tokens is 0: there is nothing to generate"
    return fault_of_images(spec.images, len(spec.prompt), service.images) if spec.images else None


def _first_beyond(tokens: Iterable[int], vocab_size: int) -> int | None:
    """The largest is looked at first, which is fast."""
    if max(tokens, default=0) < vocab_size and min(tokens, default=0) >= 0:
        return None
    return next(token for token in tokens if not 0 <= token < vocab_size)
