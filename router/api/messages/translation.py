"""Translates bodies of the Messages API to chats. Pure. What no chat can say is refused by name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from router.api.errors import bad_parameter
from router.api.messages.bodies import (
    Block,
    CountBody,
    ImageData,
    MessageParam,
    MessagesBody,
    MessageTool,
    OutputConfig,
    ResultPart,
    TextBlock,
    Thinking,
)
from router.api.openai.input.bodies import (
    ChatBody,
    ContentPart,
    Message,
    NamedFunction,
    NamedSchema,
    NamedTool,
    ReasoningEffort,
    ResponseFormat,
    ToolCall,
)

# What parameters of chats are called here.
NAMES: Final[Mapping[str, str]] = {
    "messages": "messages",
    "continue_final_message": "messages",
    "tools": "tools",
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "thinking_token_budget": "thinking.budget_tokens",
    "reasoning_effort": "thinking",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "response_format": "output_config.format",
}
_UNSUPPORTED: Final = ("container", "context_management", "mcp_servers")


def chat_of_messages(body: CountBody) -> ChatBody:
    """Raise `ApiError` on what contradicts itself or is not supported."""
    for name in _UNSUPPORTED:
        if (value := getattr(body, name)) is not UNSET and bytes(value) not in (b"null", b"[]", b"{}"):
            raise bad_parameter(name, "is not supported by this server", "unsupported_parameter")
    messages = [*_system(body.system), *_messages(body.messages)]
    choice, is_parallel = _tool_choice(body)
    wanted = None if body.output_config is None else body.output_config.format
    wanted = wanted or body.output_format
    chat = ChatBody(
        model=body.model,
        messages=messages,
        tools=None if not body.tools else [_tool(tool, index) for index, tool in enumerate(body.tools)],
        tool_choice=choice,
        parallel_tool_calls=is_parallel,
        response_format=None
        if wanted is None
        else ResponseFormat(type="json_schema", json_schema=NamedSchema(schema_=wanted.schema_)),
        reasoning_effort=_effort(body.thinking, body.output_config),
        continue_final_message=messages[-1].role == "assistant" or None,
    )
    if isinstance(body, MessagesBody):
        _add_sampling(chat, body)
    return chat


def _add_sampling(chat: ChatBody, body: MessagesBody) -> None:
    chat.max_completion_tokens = body.max_tokens
    chat.stop = body.stop_sequences
    chat.temperature, chat.top_k, chat.top_p, chat.stream = body.temperature, body.top_k, body.top_p, body.stream
    thinking = body.thinking
    if thinking is None:
        return
    chat.include_reasoning = False if thinking.display == "omitted" else None
    if thinking.type == "enabled":
        if thinking.budget_tokens is None:
            raise bad_parameter("thinking.budget_tokens", "is required", "missing_required_parameter")
        if thinking.budget_tokens >= body.max_tokens:
            raise bad_parameter("thinking.budget_tokens", f"must be less than max_tokens ({body.max_tokens})")
        chat.thinking_token_budget = thinking.budget_tokens


def _effort(thinking: Thinking | None, config: OutputConfig | None) -> ReasoningEffort | None:
    """Return how much the model is to think; None: as it usually does."""
    if thinking is not None and thinking.type == "disabled":
        return "none"
    effort = None if config is None else config.effort
    if effort == "max":
        return "xhigh"
    return "high" if effort is None and thinking is not None and thinking.type == "enabled" else effort


# --- tools ------------------------------------------------------------------------------------------------------------


def _tool(tool: MessageTool, index: int) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise bad_parameter(f"tools[{index}].type", f"{tool.type!r} is not supported: only tools of your own are")
    if tool.input_schema is None:
        raise bad_parameter(f"tools[{index}].input_schema", "is required", "missing_required_parameter")
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(body: CountBody) -> tuple[Any, bool | None]:
    """Return ``tool_choice`` and ``parallel_tool_calls`` as chats have them."""
    choice = body.tool_choice
    if choice is None:
        return None, None
    is_parallel = False if choice.disable_parallel_tool_use else None
    match choice.type:
        case "any":
            return "required", is_parallel
        case "tool":
            if not choice.name:
                raise bad_parameter("tool_choice.name", "is required", "missing_required_parameter")
            return NamedTool(type="function", function=NamedFunction(name=choice.name)), is_parallel
        case other:
            return other, is_parallel


# --- messages ---------------------------------------------------------------------------------------------------------


def _system(system: str | Sequence[TextBlock] | None) -> Iterator[Message]:
    if system:
        text = system if isinstance(system, str) else _joined(block.text for block in system)
        yield Message(role="system", content=text)


def _messages(messages: Sequence[MessageParam]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        where = f"messages[{index}].content"
        if isinstance(message.content, str):
            yield Message(role=message.role, content=message.content)
        elif message.role == "user":
            yield from _of_user(message.content, where)
        else:
            yield _of_assistant(message.content, where)
    if messages[-1].role == "assistant" and any(
        block.type == "tool_use" for block in messages[-1].content if isinstance(block, Block)
    ):
        raise bad_parameter("messages", "end with calls of tools; their results must follow")


def _of_user(blocks: Sequence[Block], where: str) -> Iterator[Message]:
    """Results of tools are messages of their own. All stay in order."""
    parts: list[ContentPart] = []
    for index, block in enumerate(blocks):
        if block.type == "text":
            parts.append(ContentPart(type="text", text=_text(block.text, f"{where}[{index}]")))
        elif block.type == "image":
            parts.append(ContentPart(type="image_url", image_url=_url(block.source, f"{where}[{index}].source")))
        elif block.type == "tool_result":
            if parts:
                yield _user(parts)
                parts = []
            yield _result(block, f"{where}[{index}]")
        else:
            raise _unsupported(block, f"{where}[{index}]")
    if parts or not blocks:
        yield _user(parts)


def _user(parts: list[ContentPart]) -> Message:
    if len(parts) == 1 and parts[0].text is not None:
        return Message(role="user", content=parts[0].text)
    return Message(role="user", content=parts)


def _url(source: ImageData | None, where: str) -> str:
    """Return where an image is as chats say it."""
    if source is None:
        raise bad_parameter(where, "is required", "missing_required_parameter")
    if source.type == "file":
        raise bad_parameter(f"{where}.type", "files are not supported; use base64")
    name, given = ("data", source.data) if source.type == "base64" else ("url", source.url)
    if not given:
        raise bad_parameter(f"{where}.{name}", "is required", "missing_required_parameter")
    return given if source.type == "url" else f"data:{source.media_type or ''};base64,{given}"


def _result(block: Block, where: str) -> Message:
    """Templates have no word for failed calls, so that the text says it."""
    if not block.tool_use_id:
        raise bad_parameter(f"{where}.tool_use_id", "is required", "missing_required_parameter")
    content = block.content
    text = content if isinstance(content, str) else _joined(_result_texts(content or (), where))
    return Message(
        role="tool", tool_call_id=block.tool_use_id, content=f"Error: {text}" if block.is_error else text or ""
    )


def _result_texts(parts: Sequence[ResultPart], where: str) -> Iterator[str]:
    for index, part in enumerate(parts):
        if part.type != "text":
            raise bad_parameter(f"{where}.content[{index}].type", f"only text is supported, not {part.type!r}")
        yield _text(part.text, f"{where}.content[{index}]")


def _of_assistant(blocks: Sequence[Block], where: str) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(blocks):
        match block.type:
            case "text":
                texts.append(_text(block.text, f"{where}[{index}]"))
            case "thinking":
                thoughts.append(block.thinking or "")
            case "tool_use":
                calls.append(_call(block, f"{where}[{index}]"))
            case _:
                raise _unsupported(block, f"{where}[{index}]")
    return Message(
        role="assistant",
        content=_joined(texts) if texts or not calls else None,
        reasoning_content=_joined(thoughts) if thoughts else None,
        tool_calls=calls or None,
    )


def _call(block: Block, where: str) -> ToolCall:
    if not block.id or not block.name:
        raise bad_parameter(f"{where}.{'name' if block.id else 'id'}", "is required", "missing_required_parameter")
    given = b"" if block.input is UNSET else bytes(block.input).strip()
    if not given.startswith(b"{"):
        raise bad_parameter(f"{where}.input", "must be an object")
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": given.decode()}}


def _text(text: str | None, where: str) -> str:
    if text is None:
        raise bad_parameter(f"{where}.text", "is required", "missing_required_parameter")
    return text


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def _unsupported(block: Block, where: str) -> Exception:
    return bad_parameter(f"{where}.type", f"blocks of the type {block.type[:64]!r} are not supported here")
