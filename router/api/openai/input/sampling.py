"""Turns the parameters of a request into the `Sampling` of each of its choices."""

import os
from typing import Final

from mesh.wire.requests import Sampling
from router.api.errors import bad_parameter
from router.api.openai.input.bodies import MAX_CHOICES, MAX_STOP_CHARACTERS, ChatBody, CompletionBody, SamplingBody
from router.api.openai.input.unsupported import check_supported
from router.api.openai.models import ServedModel

MAX_SEED: Final = 2**63
MIN_TEMPERATURE: Final = 1e-5  # below it the likeliest token is taken: divided by it, logits could overflow
MIN_TOP_P: Final = 1e-6  # of what a float of engines can tell from nothing
MAX_WHOLE_LOGPROBS: Final = 262_144  # about 100 bytes each

_GOLDEN: Final = 0x9E3779B97F4A7C15


def check_completion(body: CompletionBody) -> None:
    """Raise `ApiError` on what is not supported or contradicts itself."""
    _check_common(body)
    if body.best_of is not None and body.best_of < (body.n or 1):
        raise bad_parameter("best_of", f"must be at least n ({body.n})")
    if body.has_best_of and body.stream:
        raise bad_parameter(
            "best_of", "cannot be more than n in a stream: which answers are best is known at their end"
        )
    if body.echo and body.logprobs is not None and body.prompt_logprobs is not None:
        raise bad_parameter("prompt_logprobs", "cannot be combined with echo and logprobs, which show them, too")
    if body.max_tokens == 0 and not body.echo:
        raise bad_parameter("max_tokens", "must be at least 1 without echo")


def check_chat(body: ChatBody) -> None:
    """Raise `ApiError` on what is not supported or contradicts itself."""
    _check_common(body)
    if body.top_logprobs and not body.logprobs:
        raise bad_parameter("top_logprobs", "needs logprobs to be true")
    if body.max_tokens == 0:
        raise bad_parameter("max_tokens", "must be at least 1")


def _check_common(body: SamplingBody) -> None:
    _check_stops(stop_strings(body))
    if body.prompt_logprobs is not None and body.stream:
        raise bad_parameter("prompt_logprobs", "needs stream to be false")
    if body.stream_options is not None and not body.stream:
        raise bad_parameter("stream_options", "needs stream to be true")
    check_supported(body)


def _check_stops(stops: tuple[str, ...]) -> None:
    if "" in stops:
        raise bad_parameter("stop", "must not contain an empty string")
    num_characters = sum(map(len, stops))
    if num_characters > MAX_STOP_CHARACTERS:
        raise bad_parameter("stop", f"can have at most {MAX_STOP_CHARACTERS} characters in all, not {num_characters}")


def stop_strings(body: SamplingBody) -> tuple[str, ...]:
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


def check_num_choices(num_prompts: int, n: int) -> None:
    if num_prompts * n > MAX_CHOICES:
        message = f"{num_prompts} prompts with n = {n} make more than {MAX_CHOICES} choices"
        raise bad_parameter("n" if num_prompts == 1 else "prompt", message)


def base_seed(body: SamplingBody) -> int:
    """The client's seed, or a random one."""
    return int.from_bytes(os.urandom(8)) % MAX_SEED if body.seed is None else body.seed % MAX_SEED


def derived_seed(seed: int, index: int) -> int:
    """The seed of a prompt's choice: the request's own for the first one, far from each other for the others."""
    return (seed + index * _GOLDEN) % MAX_SEED


def sampling_of(
    body: SamplingBody, model: ServedModel, max_tokens: int, logprobs: int | None, echo: bool, grammar: str
) -> Sampling:
    """The first choice's; the others differ in their seeds. ``echo``: log-probabilities of the prompt, too."""
    _check_token_ids("stop_token_ids", body.stop_token_ids or (), model)
    _check_token_ids("logit_bias", body.logit_bias or (), model)
    if (body.min_tokens or 0) > max_tokens:
        raise bad_parameter("min_tokens", f"must be at most max_tokens ({max_tokens}), not {body.min_tokens}")
    return Sampling(
        max_tokens=max_tokens,
        seed=base_seed(body),
        temperature=_temperature(_or(body.temperature, model.temperature)),
        top_p=max(MIN_TOP_P, _or(body.top_p, model.top_p)),
        top_k=max(0, body.top_k or 0),
        min_p=_or(body.min_p, 0.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        logit_bias=body.logit_bias or {},
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        min_tokens=body.min_tokens or 0,
        logprobs=logprobs,
        prompt_logprobs=logprobs if echo and logprobs is not None else body.prompt_logprobs,
        grammar=grammar,
    )


def _or(value: float | None, default: float) -> float:
    """Without a negative zero: whoever tests signs need not think of it."""
    return (default if value is None else value) + 0.0


def _temperature(value: float) -> float:
    return value if value >= MIN_TEMPERATURE else 0.0


def check_logprobs(num_logprobs: int) -> None:
    """Raise `ApiError` if an answer would have more in one piece than a gateway may hold."""
    if num_logprobs > MAX_WHOLE_LOGPROBS:
        message = f"an answer can have {MAX_WHOLE_LOGPROBS} of them in one piece, and this could have {num_logprobs}"
        raise bad_parameter("logprobs", f"{message}; ask for fewer, for fewer tokens or choices, or for a stream")


def _check_token_ids(param: str, ids: "list[int] | dict[int, float] | tuple[()]", model: ServedModel) -> None:
    for token in ids:
        if not 0 <= token < model.vocab_size:
            raise bad_parameter(param, f"token id {token} is not in 0..{model.vocab_size - 1}")
