"""Turns a chat's body into what templates are given, and into what its answer may do with tools.

Every field of a message reaches the template. What the model's template cannot show is refused by name.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec

from engines.models.text.chat_template import Chat
from router.api.errors import bad_parameter
from router.api.openai.input.bodies import (
    ChatBody,
    ContentPart,
    Message,
    MessageWithMore,
    NamedTool,
    ToolCall,
    ToolDefinition,
    Unread,
)
from router.chat.style import ChatStyle
from router.chat.teaching import taught
from router.chat.tools import Choosing, Tool, ToolUse, any_object
from router.images.sources import ImageSource

MAX_ARGUMENTS: Final = 262_144  # characters, which are read on the event loop
_OWN_VARIABLES: Final = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template")
)
_OTHERS: Final = ("name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal")
_others: Final = attrgetter(*_OTHERS)
_NO_OTHERS: Final = (None,) * len(_OTHERS)
_BUDGETS: Final[Mapping[str, int]] = {"none": 0, "minimal": 256, "low": 1024, "medium": 4096}  # tokens of reasoning


class ChatWishes(Protocol):
    """What a chat's prompt is made of, whatever the body."""

    @property
    def tools(self) -> Sequence[Mapping[str, Any]] | None: ...
    @property
    def documents(self) -> Sequence[Mapping[str, Any]] | None: ...
    @property
    def add_generation_prompt(self) -> bool | None: ...
    @property
    def continue_final_message(self) -> bool | None: ...
    @property
    def chat_template_kwargs(self) -> Mapping[str, Any] | None: ...
    @property
    def reasoning_effort(self) -> str | None: ...


class AskedChat(msgspec.Struct, frozen=True):
    """A chat that may be rendered. ``use`` is None if its answer may call no tools. ``images``: of its messages, in
    order; templates see where they are.
    """

    chat: Chat
    use: ToolUse | None = None
    images: Sequence[ImageSource] = ()


def asked_chat(body: ChatBody, style: ChatStyle) -> AskedChat:
    """Raise `ApiError` on what contradicts itself or what the model's template cannot show."""
    use = tool_use(body)
    tools = None if use is None or use.choosing is Choosing.NONE else body.tools
    images = images_of(body.messages)
    return AskedChat(chat_of(body.messages, body, style, tools), use, images)


def chat_of(
    messages: Sequence[Message], wishes: ChatWishes, style: ChatStyle, tools: Sequence[Mapping[str, Any]] | None
) -> Chat:
    """Make a chat of messages and what is wished of its prompt. Raise `ApiError` as `asked_chat`."""
    facts = style.facts_of(has_tools=bool(tools))
    knows_developer = facts is not None and facts.takes_developer
    plain = [_message(message, index, knows_developer) for index, message in enumerate(messages)]
    continues = bool(wishes.continue_final_message)
    if continues and wishes.add_generation_prompt:
        raise bad_parameter("continue_final_message", "contradicts add_generation_prompt: an answer cannot do both")
    if continues and not plain[-1].get("content"):
        raise bad_parameter("continue_final_message", "needs a last message with content to continue")
    parameters = _parameters(wishes, style)
    return Chat(
        taught(plain, tools, style.calls, keeps_calls=style.keeps_calls) if style.is_taught else plain,
        tools=None if style.is_taught else tools or None,
        documents=wishes.documents or None,
        add_generation_prompt=not continues and wishes.add_generation_prompt is not False,
        continues=continues,
        parameters=parameters,
    )


def images_of(messages: Sequence[Message]) -> list[ImageSource]:
    """Return the images of messages, in order. Raise `ApiError` if one has no URL."""
    places = [
        (part, f"messages[{index}].content[{which}].image_url")
        for index, message in enumerate(messages)
        if isinstance(message.content, list)
        for which, part in enumerate(message.content)
        if part.type == "image_url"
    ]
    return [_image(part, param, number) for number, (part, param) in enumerate(places, 1)]


def _image(part: ContentPart, param: str, number: int) -> ImageSource:
    given = part.image_url
    if not given:
        raise bad_parameter(param, "is required", "missing_required_parameter")
    return ImageSource(param, given if isinstance(given, str) else given.url, number)


def tool_use(body: ChatBody) -> ToolUse | None:
    """Return what an answer may do with the tools of a body. None: it has none."""
    choice = body.tool_choice
    if not body.tools:
        if choice is not None and choice not in ("none", "auto"):
            raise bad_parameter("tool_choice", "needs tools")
        return None
    tools = [_tool(index, tool) for index, tool in enumerate(body.tools)]
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise bad_parameter("tools", f"have two functions of the name {twice!r}")
    is_parallel = body.parallel_tool_calls is not False
    if isinstance(choice, NamedTool):
        chosen = [tool for tool in tools if tool.name == choice.function.name]
        if not chosen:
            raise bad_parameter(
                "tool_choice", f"{choice.function.name[:64]!r} is none of the tools: {', '.join(names)}"
            )
        return ToolUse(chosen, Choosing.REQUIRED, is_parallel=False)
    return ToolUse(tools, Choosing(choice or "auto"), is_parallel)


def most_reasoning_tokens(body: ChatBody, style: ChatStyle) -> int | None:
    """How many tokens an answer may think for. None: as many as it likes. Raise `ApiError` if a number is asked for
    and the model has no token that ends its reasoning.
    """
    if style.reasoning is None:
        return None
    can_end = style.special_token(style.reasoning.end) is not None
    if body.thinking_token_budget is not None:
        if not can_end:
            raise bad_parameter(
                "thinking_token_budget", "is not supported: this model has no token that ends reasoning"
            )
        return body.thinking_token_budget
    if not can_end or (style.facts is not None and style.facts.takes_effort):
        return None
    return _BUDGETS.get(body.reasoning_effort or "")


def _tool(index: int, tool: Mapping[str, Any]) -> Tool:
    param = f"tools[{index}]"
    if tool.get("type") != "function":
        raise bad_parameter(f"{param}.type", f"only functions are supported, not {str(tool.get('type'))[:64]!r}")
    try:
        function = msgspec.convert(tool, ToolDefinition).function
    except msgspec.ValidationError as error:
        says, _, place = str(error).rpartition(" - at ")
        raise bad_parameter(param + place.strip("`").removeprefix("$"), says[:200]) from None
    if function is None:
        raise bad_parameter(f"{param}.function", "is required", "missing_required_parameter")
    return Tool(function.name, function.parameters or any_object(), bool(function.strict))


def _parameters(wishes: ChatWishes, style: ChatStyle) -> dict[str, Any]:
    """Return the further variables of the template."""
    if wishes.chat_template_kwargs is None and wishes.reasoning_effort is None:
        return {}
    given = dict(wishes.chat_template_kwargs or {})
    if taken := sorted(_OWN_VARIABLES & given.keys()):
        raise bad_parameter(f"chat_template_kwargs.{taken[0]}", "has a parameter of its own")
    effort, facts = wishes.reasoning_effort, style.facts
    if effort is None or facts is None:
        return given
    if facts.takes_effort:
        return {"reasoning_effort": effort} | given
    if facts.takes_thinking_switch:
        return {facts.takes_thinking_switch: effort != "none"} | given
    return given


# --- messages ---------------------------------------------------------------------------------------------------------


def _message(message: Message, index: int, knows_developer: bool) -> dict[str, Any]:
    """Return one message as templates are given it. Absent fields stay absent."""
    role = "system" if message.role == "developer" and not knows_developer else message.role
    if type(message) is Message and isinstance(message.content, str) and _others(message) == _NO_OTHERS:
        return {"role": role, "content": message.content}  # nearly always
    shown: dict[str, Any] = {"role": role}
    if message.content is not msgspec.UNSET or not _may_be_empty(message):
        shown["content"] = _content(message, index)
    for name in ("name", "tool_call_id", "reasoning_content", "reasoning", "refusal"):
        if (value := getattr(message, name)) is not None:
            shown[name] = value
    if message.tool_calls:
        shown["tool_calls"] = [
            _call(call, f"messages[{index}].tool_calls[{n}]") for n, call in enumerate(message.tool_calls)
        ]
    if isinstance(message, MessageWithMore):
        shown |= {name: value for name, value in message.more.items() if name not in shown}
    return shown


def _may_be_empty(message: Message) -> bool:
    """Whether it says something without content."""
    return bool(message.tool_calls) or (message.role == "assistant" and message.reasoning_content is not None)


def _content(message: Message, index: int) -> str | list[dict[str, str]] | None:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None or content is msgspec.UNSET:
        if message.role != "assistant":
            raise bad_parameter(f"messages[{index}].content", "is required", "missing_required_parameter")
        return None if message.tool_calls else message.refusal or ""
    return [_part(part, message, index) for part in content]


def _part(part: ContentPart, message: Message, index: int) -> dict[str, str]:
    if part.type == "image_url" and message.role == "user":
        return {"type": "image"}
    if part.type == "image_url":
        raise bad_parameter(f"messages[{index}].content", f"images are in messages of the user, not of {message.role}")
    if part.type not in ("text", "refusal", "input_text", "output_text") or part.text is None:
        raise bad_parameter(f"messages[{index}].content", f"only text and image_url are supported, not {part.type!r}")
    return {"type": "text", "text": part.text}


def _call(call: ToolCall, param: str) -> dict[str, Any]:
    """Return a call without what OpenAI's client adds to it: its ``parsed_arguments``, an object."""
    function = call.get("function")
    if not isinstance(function, dict) or not function.get("name"):
        raise bad_parameter(f"{param}.function.name", "is required", "missing_required_parameter")
    if call.get("type") not in (None, "function"):
        raise bad_parameter(f"{param}.type", "must be function")
    arguments = function.get("arguments")
    if isinstance(arguments, Unread) or isinstance(function["name"], Unread):
        raise bad_parameter(f"{param}.function", "must have a name and arguments that are strings")
    if arguments is not None and len(arguments) > MAX_ARGUMENTS:
        raise bad_parameter(f"{param}.function.arguments", f"can have at most {MAX_ARGUMENTS} characters")
    read = {name: value for name, value in function.items() if not isinstance(value, Unread)}
    return {**call, "function": read}
