"""Bodies of /v1/embeddings as OpenAI defines it, of /v1/rerank as Jina and Cohere do, and of /v1/score as vLLM does.

What is said of `router.api.openai.input.bodies` holds here, too.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from router.api.openai.input.bodies import MAX_COUNT, Body, Name, PositiveCount, PromptItem
from router.api.openai.input.bounds import MAX_TEXTS

MAX_USER = 1024  # characters

Texts: TypeAlias = Annotated[list[str], Meta(min_length=1, max_length=MAX_TEXTS)]
Truncation: TypeAlias = Annotated[int, Meta(ge=-1, le=MAX_COUNT)]


class PooledBody(Body, kw_only=True):
    """What all three have in common. ``truncate_prompt_tokens``: as many tokens of a longer text count; -1: as many as
    the model takes; without it, a text that is too long is refused.
    """

    model: Name | None = None
    truncate_prompt_tokens: Truncation | None = None
    user: Annotated[str, Meta(max_length=MAX_USER)] | None = None


class EmbeddingBody(PooledBody, kw_only=True):
    input: str | Annotated[list[PromptItem], Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveCount | None = None
    messages: Any = None  # refused, as are those below
    normalize: bool | None = None
    add_special_tokens: bool | None = None


class Document(Body, kw_only=True):
    text: str


class RerankBody(PooledBody, kw_only=True):
    query: str
    documents: Annotated[list[str | Document], Meta(min_length=1, max_length=MAX_TEXTS)]
    top_n: Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Any = None  # refused


class ScoreBody(PooledBody, kw_only=True):
    """``text_1`` is one text or as many as ``text_2``."""

    text_1: str | Texts
    text_2: str | Texts
