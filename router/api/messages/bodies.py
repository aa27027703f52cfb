"""Bodies of requests, as Anthropic's Messages API defines them. ``null`` means the same as absent everywhere.

Fields that say nothing of the answer (``metadata``, ``cache_control``, ``service_tier``) are not read.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType, field

from router.api.openai.input.bodies import (
    MAX_MESSAGES,
    MAX_STOPS,
    MAX_TOOLS,
    Body,
    Count,
    Fraction,
    JsonSchema,
    Name,
    PositiveCount,
)

MAX_BLOCKS = 4096  # of one message


class ImageData(Body, kw_only=True):
    """Where the image of a block is."""

    type: Literal["base64", "url", "file"]
    media_type: Name | None = None
    data: str | None = None
    url: str | None = None


class ResultPart(Body, kw_only=True):
    """A part of what a tool answered."""

    type: Name
    text: str | None = None


class Block(Body, kw_only=True):
    """A block of a message, whatever its kind. ``input``: JSON, as it came."""

    type: Name
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw | UnsetType = UNSET
    tool_use_id: str | None = None
    content: str | Annotated[list[ResultPart], Meta(max_length=MAX_BLOCKS)] | None = None
    is_error: bool | None = None
    thinking: str | None = None
    source: ImageData | None = None  # of an image


class TextBlock(Body, kw_only=True):
    type: Literal["text"]
    text: str


Blocks: TypeAlias = Annotated[list[Block], Meta(max_length=MAX_BLOCKS)]


class MessageParam(Body, kw_only=True):
    role: Literal["user", "assistant"]
    content: str | Blocks


class MessageTool(Body, kw_only=True):
    """``type``: null or ``custom``; others are tools that Anthropic runs."""

    name: str
    type: Name | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class MessageToolChoice(Body, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body, kw_only=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: PositiveCount | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Body, kw_only=True):
    type: Literal["json_schema"]
    schema_: JsonSchema = field(name="schema")


class OutputConfig(Body, kw_only=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountBody(Body, kw_only=True):
    """What the prompt of a message is made of: the body of ``/v1/messages/count_tokens``."""

    model: Name | None = None
    messages: Annotated[list[MessageParam], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: str | Annotated[list[TextBlock], Meta(max_length=MAX_BLOCKS)] | None = None
    tools: Annotated[list[MessageTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    container: Raw | UnsetType = UNSET
    context_management: Raw | UnsetType = UNSET
    mcp_servers: Raw | UnsetType = UNSET


class MessagesBody(CountBody, kw_only=True):
    max_tokens: PositiveCount
    stop_sequences: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=MAX_STOPS)] | None = None
    temperature: Fraction | None = None
    top_k: Count | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    stream: bool | None = None
