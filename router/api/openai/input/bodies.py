"""Bodies of requests, as the OpenAI API and vLLM's extensions of it define them.

``null`` means the same as absent everywhere. Unknown fields are ignored, as OpenAI does; known ones that would change
the answer and are not supported are refused by `router.api.openai.input.sampling`. Every number, text and list has a
bound, either here or, for those that may be large, in `router.api.openai.input.bounds`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1024  # of all stop strings: their automaton is built on the event loop, in 2 ms
MAX_MESSAGES = 4096
MAX_WORDS = 1024
MAX_BIASES = 1024
MAX_COUNT = 2**31 - 1  # of tokens, where nothing smaller is known
MAX_NAME = 256  # characters of a model's name
MAX_TOOLS = 128
MAX_DOCUMENTS = 256
MIN_REPETITION_PENALTY = 0.01  # less is no penalty that anybody wants, and overflows

# Fields whose types do not speak for themselves: "must be ..." in the words of a person.
SHAPES: Final[Mapping[str, str]] = {
    "prompt": "a string, a list of strings, a list of token ids, or a list of lists of token ids",
    "input": "a string, a list of strings, a list of token ids, or a list of lists of token ids; of a response, a "
    "string or a list of items",
    "documents": "a list of strings, or of objects with a text",
    "text_1": "a string or a list of strings",
    "text_2": "a string or a list of strings",
    "tokens": "a list of token ids",
    "stop": "a string or a list of strings",
    "content": "a string or a list of parts: text, or image_url with its url",
    "json": "a JSON schema: an object, or a string of one",
    "role": "system, developer, user, assistant or tool",
    "tool_choice": "none, auto, required, or an object that names a function",
    "tool_calls": "a list of calls as answers have them: id, type, and function with name and arguments, a string",
    "logit_bias": "an object with biases by token id",
}

TokenId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]
TokenIds: TypeAlias = list[TokenId]
PromptItem: TypeAlias = TokenId | str | TokenIds
JsonSchema: TypeAlias = dict[str, Any]
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
PositiveCount: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2.0, le=2.0)]
Bias: TypeAlias = Annotated[float, Meta(ge=-100.0, le=100.0)]
Form: TypeAlias = Annotated[str, Meta(min_length=1)]
Logprobs: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]


class Body(Struct):
    """What one kind of JSON object may hold."""


class StreamOptions(Body, kw_only=True):
    include_usage: bool | None = None


class NamedSchema(Body, kw_only=True):
    schema_: JsonSchema | None = field(default=None, name="schema")


class ResponseFormat(Body, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class StructuredOutputs(Body, kw_only=True):
    """One of them. ``grammar`` is Lark's syntax, as llguidance has it."""

    json_: JsonSchema | str | None = field(default=None, name="json")
    json_object: bool | None = None
    regex: Form | None = None
    choice: Annotated[list[Form], Meta(min_length=1, max_length=MAX_WORDS)] | None = None
    grammar: Form | None = None


ABSENT: Final = Raw()


class UnsupportedFields(Body, kw_only=True):
    """Fields that would change an answer, and that are refused by name (`router.api.openai.input.unsupported`)."""

    allowed_token_ids: Raw = ABSENT
    audio: Raw = ABSENT
    bad_words: Raw = ABSENT
    chat_template: Raw = ABSENT
    function_call: Raw = ABSENT
    functions: Raw = ABSENT
    guided_choice: Raw = ABSENT
    guided_grammar: Raw = ABSENT
    guided_json: Raw = ABSENT
    guided_regex: Raw = ABSENT
    include_stop_str_in_output: Raw = ABSENT
    length_penalty: Raw = ABSENT
    logits_processors: Raw = ABSENT
    mm_processor_kwargs: Raw = ABSENT
    modalities: Raw = ABSENT
    prediction: Raw = ABSENT
    prompt_embeds: Raw = ABSENT
    return_token_ids: Raw = ABSENT
    skip_special_tokens: Raw = ABSENT
    spaces_between_special_tokens: Raw = ABSENT
    truncate_prompt_tokens: Raw = ABSENT
    use_beam_search: Raw = ABSENT
    verbosity: Raw = ABSENT
    web_search_options: Raw = ABSENT


class SamplingBody(UnsupportedFields, kw_only=True):
    """What completions and chat completions have in common."""

    model: Name | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=MIN_REPETITION_PENALTY, le=10.0)] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=MAX_BIASES)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[TokenIds, Meta(max_length=MAX_BIASES)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    prompt_logprobs: Logprobs | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class CompletionBody(SamplingBody, kw_only=True):
    prompt: str | list[PromptItem]
    echo: bool | None = None
    logprobs: Logprobs | None = None
    suffix: str | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None

    @property
    def num_drawn(self) -> int:
        """How many answers to each prompt are written, of which ``n`` are shown."""
        return max(self.n or 1, self.best_of or 1)

    @property
    def has_best_of(self) -> bool:
        return self.num_drawn > (self.n or 1)


class ImageUrl(Body, kw_only=True):
    """``detail`` is read and not heeded: an image is as many tokens as its model makes of it."""

    url: str
    detail: Name | None = None


class ContentPart(Body, kw_only=True):
    type: Name
    text: str | None = None
    image_url: str | ImageUrl | None = None


class Unread(Body):
    """An object of which nothing is read."""


# A call of a tool in a message, its fields in the order in which they came: templates may print them.
ToolCall: TypeAlias = dict[str, str | int | dict[str, str | Unread | None] | None]


class Message(Body, kw_only=True, forbid_unknown_fields=True):
    """One message. Fields that nobody here knows are kept in `MessageWithMore`: templates may know them."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | UnsetType | None = UNSET
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class MessageWithMore(Message, kw_only=True):
    """A message with further fields. ``more``: those that are not null, by name."""

    more: dict[str, Any]


Messages: TypeAlias = Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]


class FunctionDefinition(Body, kw_only=True):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(Body, kw_only=True):
    """Validates a tool; templates get it as it came."""

    type: Name
    function: FunctionDefinition | None = None


class NamedFunction(Body, kw_only=True):
    name: str


class NamedTool(Body, kw_only=True):
    type: Literal["function"]
    function: NamedFunction


Tools: TypeAlias = Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)]
Documents: TypeAlias = Annotated[list[dict[str, Any]], Meta(max_length=MAX_DOCUMENTS)]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class ChatBody(SamplingBody, kw_only=True):
    messages: Messages
    tools: Tools | None = None
    documents: Documents | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: ReasoningEffort | None = None
    max_completion_tokens: PositiveCount | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    thinking_token_budget: Count | None = None
    include_reasoning: bool | None = None


class TokenizeBody(Body, kw_only=True):
    """Either ``prompt`` or ``messages``, with what makes a chat's prompt."""

    model: Name | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    tools: Tools | None = None
    documents: Documents | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: ReasoningEffort | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body, kw_only=True):
    model: Name | None = None
    tokens: TokenIds
