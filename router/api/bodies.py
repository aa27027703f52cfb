"""Bodies of requests, as the OpenAI API and vLLM's extensions of it define them.

``null`` means the same as absent everywhere. Unknown fields are ignored, as OpenAI does; known ones that would change
the answer and are not supported are refused by `router.api.sampling`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_STOPS = 16
MAX_MESSAGES = 4096
MAX_WORDS = 1024

# Fields with several shapes: "must be ..." in the words of a person.
SHAPES: Final[Mapping[str, str]] = {
    "prompt": "a string, a list of strings, a list of token ids, or a list of lists of token ids",
    "stop": "a string or a list of strings",
    "content": "a string or a list of text parts",
    "json": "a JSON schema: an object, or a string of one",
}

TokenIds: TypeAlias = list[int]
JsonSchema: TypeAlias = dict[str, Any]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore", protected_namespaces=())


class StreamOptions(Body):
    include_usage: bool | None = None


class NamedSchema(Body):
    schema_: JsonSchema | None = Field(None, alias="schema")


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


Form: TypeAlias = Annotated[str, Field(min_length=1)]


class StructuredOutputs(Body):
    """One of them. ``grammar`` is Lark's syntax, as llguidance has it."""

    json_: JsonSchema | str | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: Form | None = None
    choice: list[Form] | None = Field(None, min_length=1, max_length=MAX_WORDS)
    grammar: Form | None = None


class SamplingBody(Body):
    """What completions and chat completions have in common."""

    model: str | None = None
    max_tokens: int | None = Field(None, ge=0)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(None, ge=0.0, le=1.0)
    presence_penalty: float | None = Field(None, ge=-2.0, le=2.0)
    frequency_penalty: float | None = Field(None, ge=-2.0, le=2.0)
    repetition_penalty: float | None = Field(None, gt=0.0, le=10.0)
    logit_bias: dict[int, float] | None = Field(None, max_length=1024)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stop_token_ids: TokenIds | None = Field(None, max_length=1024)
    ignore_eos: bool | None = None
    min_tokens: int | None = Field(None, ge=0)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class CompletionBody(SamplingBody):
    prompt: str | TokenIds | list[str] | list[TokenIds]
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    suffix: str | None = None
    best_of: int | None = None


class ContentPart(Body):
    type: str
    text: str | None = None


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None


class ChatBody(SamplingBody):
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    tools: list[Any] | None = None
    functions: list[Any] | None = None


class TokenizeBody(Body):
    """Either ``prompt`` or ``messages``."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=MAX_MESSAGES)
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    model: str | None = None
    tokens: TokenIds
