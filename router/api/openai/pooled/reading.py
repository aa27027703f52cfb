"""Turns the texts of a body into prompts that are pooled: tokens of each, checked against the model's context.

Few and short ones are tokenised at once. Others take their turn in the background, so that streams go on.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeVar, cast

from engines.models.text.text_encoder import EncodedText
from router.api.background import Background
from router.api.errors import ApiError, bad_parameter, text_too_long
from router.api.openai.input.bodies import SHAPES, PromptItem
from router.api.openai.input.bounds import MAX_TEXTS
from router.api.openai.pooled.bodies import EmbeddingBody, PooledBody
from router.api.openai.pooled.model import PooledModel

LONG_TEXTS: Final = 8192  # characters of all; the library takes 5 ms for them at the worst
MANY_TEXTS: Final = 32

T = TypeVar("T")
Pair = tuple[str, str]


class TextReader:
    """Reads the texts of all calls of a gateway. ``client`` is whose turn it is in the background.

    Raise `ApiError` on a text that is empty, or longer than the model takes and not to be truncated.
    """

    def __init__(self, background: Background) -> None:
        self._background = background

    async def inputs(self, body: EmbeddingBody, model: PooledModel, client: str) -> list[EncodedText]:
        """Read the inputs of /v1/embeddings."""
        items, limit = _items(body.input), _Limit.of(body, model)
        texts = [item for item in items if isinstance(item, str)]
        if not texts:
            return [limit.tokens("input", cast(list[int], item)) for item in items]
        return await self._aside(texts, client, partial(_encoded, texts, "input", limit))

    async def texts(
        self, param: str, texts: Sequence[str], body: PooledBody, model: PooledModel, client: str
    ) -> list[EncodedText]:
        return await self._aside(texts, client, partial(_encoded, texts, param, _Limit.of(body, model)))

    async def pairs(
        self, param: str, pairs: Sequence[Pair], body: PooledBody, model: PooledModel, client: str
    ) -> list[EncodedText]:
        """Read pairs, each of which is one prompt. ``param``: of the second texts."""
        encode = partial(_encoded_pairs, pairs, param, _Limit.of(body, model))
        return await self._aside(list(chain.from_iterable(pairs)), client, encode)

    async def _aside(self, texts: Sequence[str], client: str, work: Callable[[], T]) -> T:
        is_little = len(texts) <= MANY_TEXTS and sum(map(len, texts)) <= LONG_TEXTS
        return work() if is_little else await self._background.run(client, work)


class _Limit:
    """How long texts may be, and whether longer ones are cut."""

    def __init__(self, model: PooledModel, max_tokens: int, *, cuts: bool) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.cuts = cuts

    @classmethod
    def of(cls, body: PooledBody, model: PooledModel) -> "_Limit":
        asked = body.truncate_prompt_tokens
        if asked is None or asked == -1:
            return cls(model, model.max_context, cuts=asked is not None)
        if not 1 <= asked <= model.max_context:
            problem = f"must be -1 or from 1 to the model's {model.max_context}"
            raise bad_parameter("truncate_prompt_tokens", problem)
        return cls(model, asked, cuts=True)

    def tokens(self, param: str, tokens: list[int]) -> EncodedText:
        """Token ids as they came."""
        if not tokens:
            raise bad_parameter(param, "must not be empty")
        if max(tokens) >= self.model.vocab_size:
            raise bad_parameter(param, f"token id {max(tokens)} is not in 0..{self.model.vocab_size - 1}")
        if len(tokens) > self.max_tokens and not self.cuts:
            raise self.too_long(param, f"{len(tokens)} were given")
        return EncodedText(tokens[: self.max_tokens])

    def too_long(self, param: str, what: str) -> ApiError:
        if not self.cuts:
            message = f"The model takes {self.max_tokens} tokens, special ones included, and {what}"
            hint = "; truncate_prompt_tokens = -1 cuts it"
            return ApiError(400, message + hint, param=param, code="context_length_exceeded")
        return text_too_long(param, self.max_tokens)


def _encoded(texts: Sequence[str], param: str, limit: _Limit) -> list[EncodedText]:
    return list(_each(texts, param, limit))


def _each(texts: Sequence[str], param: str, limit: _Limit) -> Iterator[EncodedText]:
    for text in texts:
        if not text:
            raise bad_parameter(param, "must not be empty")
        yield _fitting(limit.model.encoder.encode(text, limit.max_tokens, cuts=limit.cuts), param, limit)


def _encoded_pairs(pairs: Sequence[Pair], param: str, limit: _Limit) -> list[EncodedText]:
    encode = limit.model.encoder.encode_pair
    return [_fitting(encode(*pair, limit.max_tokens, cuts=limit.cuts), param, limit) for pair in pairs]


def _fitting(encoded: EncodedText | None, param: str, limit: _Limit) -> EncodedText:
    if encoded is None:
        raise limit.too_long(param, "this text has more")
    if not encoded.tokens:
        raise bad_parameter(param, "has a text without a token")
    return encoded


def _items(given: str | list[PromptItem]) -> list[str | list[int]]:
    """Return the inputs one by one. Raise `ApiError` if they mix texts, token ids and lists of them."""
    if isinstance(given, str):
        return [given]
    kinds = set(map(type, given))
    if len(kinds) > 1:
        raise bad_parameter("input", f"must be {SHAPES['input']}")
    if kinds == {int}:
        return [cast(list[int], given)]
    if len(given) > MAX_TEXTS:
        raise bad_parameter("input", f"must have at most {MAX_TEXTS} entries")
    return cast(list[str | list[int]], given)
