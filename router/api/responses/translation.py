"""Translates bodies of the Responses API to chats. Pure. What no chat can say is refused by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from router.api.errors import ApiError, bad_parameter
from router.api.openai.input.bodies import (
    MAX_MESSAGES,
    ChatBody,
    ContentPart,
    Message,
    NamedFunction,
    NamedSchema,
    NamedTool,
    ResponseFormat,
    ToolCall,
    Unread,
)
from router.api.responses.bodies import Item, ItemPart, ResponsesBody, ResponseToolChoice, TextConfig

# What parameters of chats are called here.
NAMES: Final[Mapping[str, str]] = {
    "messages": "input",
    "tools": "tools",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}
_TEXT_PARTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_HARMLESS: Final = frozenset({  # of tools that this server does not run, and of what it shows anyway
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "reasoning.encrypted_content", "web_search_call.action.sources",
    "web_search_call.results",
})  # fmt: skip


def check_response(body: ResponsesBody) -> None:
    """Raise `ApiError` on what is not supported."""
    if body.background:
        raise _unsupported("background")
    for name in ("conversation", "prompt"):
        if (value := getattr(body, name)) is not UNSET and bytes(value) != b"null":
            raise _unsupported(name)
    if body.top_logprobs:
        raise _unsupported("top_logprobs")
    for wanted in body.include or ():
        if wanted not in _HARMLESS:
            raise bad_parameter("include", f"{wanted[:64]!r} is not supported by this server", "unsupported_parameter")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise _unsupported("text.verbosity")


def items_of(body: ResponsesBody) -> list[Item]:
    """Return the input as items. A text is a message of the user."""
    if isinstance(body.input, str):
        return [Item(type="message", role="user", content=[ItemPart(type="input_text", text=body.input)])]
    return [item if item.type else _typed(item) for item in body.input]


def _typed(item: Item) -> Item:
    item.type = "message"
    return item


def chat_of_response(body: ResponsesBody, before: Sequence[Item], items: Sequence[Item]) -> ChatBody:
    """Raise `ApiError` on what contradicts itself or is not supported. ``before``: items of the responses before."""
    if len(before) + len(items) > MAX_MESSAGES:
        raise bad_parameter("input", f"can have at most {MAX_MESSAGES} items with those of the responses before")
    messages = [] if body.instructions is None else [Message(role="system", content=body.instructions)]
    messages += _messages(before, "previous_response_id")
    messages += _messages(items, "input")
    return ChatBody(
        model=body.model,
        messages=messages,
        tools=None if not body.tools else [_tool(tool) for tool in body.tools],
        tool_choice=_tool_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=_format(body.text),
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        max_completion_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        stream=body.stream,
        top_k=body.top_k,
        min_p=body.min_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        seed=body.seed,
        stop=body.stop,
        thinking_token_budget=body.thinking_token_budget,
        chat_template_kwargs=body.chat_template_kwargs,
    )


def _unsupported(param: str) -> ApiError:
    return bad_parameter(param, "is not supported by this server", "unsupported_parameter")


def _format(text: TextConfig | None) -> ResponseFormat | None:
    wanted = None if text is None else text.format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_schema" and wanted.schema_ is None:
        raise bad_parameter("text.format.schema", "is required", "missing_required_parameter")
    return ResponseFormat(type=wanted.type, json_schema=NamedSchema(schema_=wanted.schema_))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as chats have it. Whatever is wrong with it is told there."""
    if tool.get("type") != "function":
        return dict(tool)
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, ResponseToolChoice):
        return choice
    if choice.type != "function":
        raise bad_parameter("tool_choice.type", f"{choice.type[:64]!r} is not supported: only functions are")
    if not choice.name:
        raise bad_parameter("tool_choice.name", "is required", "missing_required_parameter")
    return NamedTool(type="function", function=NamedFunction(name=choice.name))


# --- items ------------------------------------------------------------------------------------------------------------


class _Turn:
    """What the model said in one turn: reasoning, then content, then calls are one message of a chat."""

    def __init__(self) -> None:
        self.reasoning: str | None = None
        self.content: str | list[ContentPart] | None = None
        self.calls: list[ToolCall] = []

    @property
    def has_spoken(self) -> bool:
        return self.content is not None or bool(self.calls)

    def take(self) -> Iterator[Message]:
        """Yield the message, if there is any, and begin another turn."""
        if self.has_spoken or self.reasoning is not None:
            content = self.content if self.has_spoken else ""
            yield Message(
                role="assistant", content=content, reasoning_content=self.reasoning, tool_calls=self.calls or None
            )
        self.reasoning, self.content, self.calls = None, None, []


def _messages(items: Sequence[Item], param: str) -> Iterator[Message]:
    turn = _Turn()
    for index, item in enumerate(items):
        where = f"{param}[{index}]"
        match item.type:
            case "reasoning":
                if turn.has_spoken or turn.reasoning is not None:
                    yield from turn.take()
                turn.reasoning = _text(item.content or item.summary or "", where)
            case "function_call":
                turn.calls.append(_call(item, where))
            case "function_call_output":
                yield from turn.take()
                yield _output(item, where)
            case "message":
                if item.role != "assistant" or turn.has_spoken:
                    yield from turn.take()
                if item.role == "assistant":
                    turn.content = _content(item, where)
                else:
                    yield _message(item, where)
            case kind:
                raise bad_parameter(f"{where}.type", f"items of the type {kind!r} are not supported")
    yield from turn.take()


def _message(item: Item, where: str) -> Message:
    if item.role is None:
        raise bad_parameter(f"{where}.role", "is required", "missing_required_parameter")
    return Message(role=item.role, content=_content(item, where))


def _output(item: Item, where: str) -> Message:
    if not item.call_id:
        raise bad_parameter(f"{where}.call_id", "is required", "missing_required_parameter")
    if item.output is None:
        raise bad_parameter(f"{where}.output", "is required", "missing_required_parameter")
    return Message(role="tool", tool_call_id=item.call_id, content=_text(item.output, f"{where}.output"))


def _call(item: Item, where: str) -> ToolCall:
    for name in ("call_id", "name"):
        if not getattr(item, name):
            raise bad_parameter(f"{where}.{name}", "is required", "missing_required_parameter")
    function: dict[str, str | Unread | None] = {"name": item.name, "arguments": item.arguments or "{}"}
    return {"id": item.call_id, "type": "function", "function": function}


def _content(item: Item, where: str) -> str | list[ContentPart]:
    content = item.content
    if content is None:
        raise bad_parameter(f"{where}.content", "is required", "missing_required_parameter")
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{where}.content", index, item.role) for index, part in enumerate(content)]
    return parts[0].text or "" if len(parts) == 1 and parts[0].type == "text" else parts


def _part(part: ItemPart, where: str, index: int, role: str | None) -> ContentPart:
    if part.type != "input_image" or role != "user":
        return ContentPart(type="text", text=_text_of(part, f"{where}[{index}]"))
    if part.image_url is None:
        problem = "is required: files of images are not supported" if part.file_id else "is required"
        raise bad_parameter(f"{where}[{index}].image_url", problem, "missing_required_parameter")
    return ContentPart(type="image_url", image_url=part.image_url)


def _text(content: str | Sequence[ItemPart], where: str) -> str:
    return content if isinstance(content, str) else "\n".join(_texts(content, where))


def _texts(parts: Sequence[ItemPart], where: str) -> Iterator[str]:
    for index, part in enumerate(parts):
        yield _text_of(part, f"{where}[{index}]")


def _text_of(part: ItemPart, where: str) -> str:
    text = part.refusal if part.type == "refusal" else part.text
    if part.type == "input_image":
        raise bad_parameter(f"{where}.type", "images are in messages of the user, and nowhere else")
    if part.type not in (*_TEXT_PARTS, "refusal"):
        raise bad_parameter(f"{where}.type", f"only text and images are supported, not {part.type!r}")
    if text is None:
        raise bad_parameter(f"{where}.text", "is required", "missing_required_parameter")
    return text
