"""Bodies of requests, as OpenAI's Responses API defines them. ``null`` means the same as absent everywhere.

Fields that say nothing of the answer (``service_tier``, ``prompt_cache_key``, ``safety_identifier``) are not read.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType, field

from router.api.openai.input.bodies import (
    MAX_MESSAGES,
    MAX_STOPS,
    Body,
    Count,
    Fraction,
    JsonSchema,
    Name,
    Penalty,
    PositiveCount,
    ReasoningEffort,
    Tools,
)

MAX_PARTS = 4096  # of one item
MAX_METADATA = 16


class ItemPart(Body, kw_only=True, omit_defaults=True):
    """A part of what an item says."""

    type: Name
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None


Parts: TypeAlias = Annotated[list[ItemPart], Meta(max_length=MAX_PARTS)]


class Item(Body, kw_only=True, omit_defaults=True):
    """An item of the input, whatever its kind; without a ``type``, a message."""

    type: Name | None = None
    id: str | None = None
    status: Name | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | Parts | None = None
    summary: Parts | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | Parts | None = None


Items: TypeAlias = Annotated[list[Item], Meta(min_length=1, max_length=MAX_MESSAGES)]


class TextFormat(Body, kw_only=True, omit_defaults=True):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    schema_: JsonSchema | None = field(default=None, name="schema")


class TextConfig(Body, kw_only=True, omit_defaults=True):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Body, kw_only=True, omit_defaults=True):
    """``summary`` is not read: what the model thinks is shown as it is."""

    effort: ReasoningEffort | None = None


class ResponseToolChoice(Body, kw_only=True, omit_defaults=True):
    type: Name
    name: str | None = None


class ResponsesBody(Body, kw_only=True):
    model: Name | None = None
    input: str | Items
    instructions: str | None = None
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: PositiveCount | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    metadata: Annotated[dict[Annotated[str, Meta(max_length=64)], str], Meta(max_length=MAX_METADATA)] | None = None
    user: str | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: Annotated[list[Name], Meta(max_length=32)] | None = None
    store: bool | None = None
    previous_response_id: Name | None = None
    stream: bool | None = None
    top_logprobs: Count | None = None
    background: bool | None = None
    conversation: Raw | UnsetType = UNSET
    prompt: Raw | UnsetType = UNSET
    # Further ones, as vLLM has them:
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    thinking_token_budget: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
