"""What a chat's body is for templates and tools, and what is refused by name."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from engines.models.text.template_facts import TemplateFacts
from router.api.errors import ApiError
from router.api.openai.chat import asked
from router.api.openai.chat.asked import asked_chat, most_reasoning_tokens, tool_use
from router.api.openai.input.bodies import ChatBody, Message, MessageWithMore
from router.chat.calls import formats
from router.chat.reasoning import FORMATS
from router.chat.style import ChatStyle
from router.chat.tools import Choosing

FACTS = TemplateFacts(takes_tools=True, takes_parts=True, takes_developer=False, takes_calls=True, takes_effort=False)
THINKS = next(iter(FORMATS.values()))
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "title": "w"}}}
OTHER = {"type": "function", "function": {"name": "time", "strict": True}}
PART = {"type": "text", "text": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:a"}}


def style(*, thinks: bool = False, ends: bool = True, **facts: Any) -> ChatStyle:
    known = replace(FACTS, **facts)
    return ChatStyle(formats.HERMES, THINKS if thinks else None, known, known, {THINKS.end: 7} if ends else {})


def body(**fields: Any) -> ChatBody:
    return msgspec.json.decode(msgspec.json.encode({"messages": HELLO} | fields), type=ChatBody)


def shown(message: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """The message as templates are given it."""
    return dict(asked_chat(body(messages=[message]), style(**facts)).chat.messages[0])


# --- messages ---------------------------------------------------------------------------------------------------------


MESSAGES = (
    (HELLO[0], HELLO[0]),
    (HELLO[0] | {"name": "a"}, HELLO[0] | {"name": "a"}),
    ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
    ({"role": "assistant", "refusal": "no"}, {"role": "assistant", "content": "no", "refusal": "no"}),
    ({"role": "assistant", "reasoning_content": "hm"}, {"role": "assistant", "reasoning_content": "hm"}),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
    ),
    ({"role": "user", "content": [{"type": "refusal", "text": "a"}]}, {"role": "user", "content": [PART]}),
    ({"role": "tool", "tool_call_id": "t", "content": "a"}, {"role": "tool", "tool_call_id": "t", "content": "a"}),
)  # fmt: skip


def test_messages_reach_the_template_whole():
    for message, found in MESSAGES:
        assert shown(message) == found


def test_a_developer_is_the_system_where_the_template_knows_none():
    told = {"role": "developer", "content": "Brief"}
    assert shown(told)["role"] == "system"
    assert shown(told, takes_developer=True)["role"] == "developer"


def test_calls_are_shown_without_what_clients_add():
    function = {"name": "weather", "arguments": "{}"}
    said = {"id": "a", "type": "function", "function": function | {"parsed_arguments": {"a": 1}}}
    told = shown({"role": "assistant", "content": None, "tool_calls": [said]})
    assert told == {"role": "assistant", "content": None, "tool_calls": [said | {"function": function}]}
    assert "content" not in shown({"role": "assistant", "tool_calls": [said]})


def test_fields_that_nobody_knows_reach_the_template():
    plain = {"role": "user", "content": "a"}
    message = MessageWithMore(**plain, more={"mood": "good", "role": "x"})
    found = asked.chat_of([message, Message(**plain)], body(), style(), None).messages
    assert found == [plain | {"mood": "good"}, plain]


# --- the prompt -------------------------------------------------------------------------------------------------------


def test_an_answer_begins_or_goes_on():
    chat = asked_chat(body(), style()).chat
    assert (chat.add_generation_prompt, chat.continues, chat.tools, chat.documents) == (True, False, None, None)
    assert not asked_chat(body(add_generation_prompt=False), style()).chat.add_generation_prompt
    chat = asked_chat(body(continue_final_message=True), style()).chat
    assert (chat.add_generation_prompt, chat.continues) == (False, True)
    assert asked_chat(body(documents=[{"text": "a"}]), style()).chat.documents == [{"text": "a"}]


def test_tools_are_shown_by_the_template_or_taught_by_the_prompt():
    assert asked_chat(body(tools=[TOOL]), style()).chat.tools == [TOOL]
    taught = asked_chat(body(tools=[TOOL]), style(takes_tools=False)).chat
    assert taught.tools is None
    assert "weather" in str(taught.messages)
    hidden = asked_chat(body(tools=[TOOL], tool_choice="none"), style())
    assert (hidden.chat.tools, hidden.use.choosing) == (None, Choosing.NONE)  # type: ignore[union-attr]


WISHES = (
    ({}, {}, {}),
    ({}, {"chat_template_kwargs": {"a": 1}}, {"a": 1}),
    ({}, {"reasoning_effort": "low"}, {}),
    ({"takes_effort": True}, {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    (
        {"takes_effort": True},
        {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
        {"reasoning_effort": "high"},
    ),
    ({"takes_thinking_switch": "thinking"}, {"reasoning_effort": "none"}, {"thinking": False}),
    ({"takes_thinking_switch": "thinking"}, {"reasoning_effort": "low"}, {"thinking": True}),
)  # fmt: skip


def test_wishes_are_variables_of_the_template():
    for facts, wishes, found in WISHES:
        assert asked_chat(body(**wishes), style(**facts)).chat.parameters == found, wishes


def test_images_have_their_places():
    messages = [*HELLO, {"role": "user", "content": [IMAGE, {"type": "image_url", "image_url": "data:b"}]}]
    images = asked_chat(body(messages=messages), style()).images
    places = [f"messages[1].content[{which}].image_url" for which in (0, 1)]
    assert [(one.param, one.url, one.number) for one in images] == [(places[0], "data:a", 1), (places[1], "data:b", 2)]


# --- tools and reasoning ----------------------------------------------------------------------------------------------


def test_what_an_answer_may_do_with_tools():
    assert tool_use(body()) is None
    assert tool_use(body(tool_choice="auto")) is tool_use(body(tool_choice="none")) is None
    use = tool_use(body(tools=[TOOL, OTHER]))
    assert use is not None
    assert (use.choosing, use.is_parallel) == (Choosing.AUTO, True)
    assert [(one.name, dict(one.schema), one.is_strict) for one in use.tools] == [
        ("weather", {"type": "object", "title": "w"}, False),
        ("time", {"type": "object"}, True),
    ]
    single = tool_use(body(tools=[TOOL], tool_choice="required", parallel_tool_calls=False))
    assert single is not None
    assert (single.choosing, single.is_parallel) == (Choosing.REQUIRED, False)
    named = tool_use(body(tools=[TOOL, OTHER], tool_choice={"type": "function", "function": {"name": "time"}}))
    assert named is not None
    assert [one.name for one in named.tools] == ["time"]
    assert (named.choosing, named.is_parallel) == (Choosing.REQUIRED, False)


EFFORTS = (
    ({"reasoning_effort": "low"}, {"thinks": False}, None),
    ({"reasoning_effort": "none"}, {}, 0),
    ({"reasoning_effort": "minimal"}, {}, 256),
    ({"reasoning_effort": "low"}, {}, 1024),
    ({"reasoning_effort": "medium"}, {}, 4096),
    ({"reasoning_effort": "high"}, {}, None),
    ({}, {}, None),
    ({"thinking_token_budget": 5, "reasoning_effort": "low"}, {"takes_effort": True}, 5),
    ({"reasoning_effort": "low"}, {"takes_effort": True}, None),
    ({"reasoning_effort": "low"}, {"ends": False}, None),
)  # fmt: skip


def test_how_long_an_answer_may_think():
    for wishes, written, found in EFFORTS:
        assert most_reasoning_tokens(body(**wishes), style(**{"thinks": True} | written)) == found, wishes


# --- what is refused --------------------------------------------------------------------------------------------------


def call(**fields: Any) -> dict[str, Any]:
    said = {"type": "function", "function": {"name": "a", "arguments": "{}"}} | fields
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [said]}]}


CALL = "messages[0].tool_calls[0]"
CONTENT = "messages[0].content"
EMPTY = {"role": "user", "content": ""}
LONGEST = "x" * asked.MAX_ARGUMENTS


REFUSED = (
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", "cannot do both"),
    ({"continue_final_message": True, "messages": [EMPTY]}, "continue_final_message", "needs a last message"),
    ({"messages": [{"role": "user"}]}, CONTENT, "is required"),
    ({"messages": [{"role": "user", "reasoning_content": "a"}]}, CONTENT, "is required"),
    ({"messages": [{"role": "system", "content": [IMAGE]}]}, CONTENT, "not of system"),
    ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, CONTENT, "not 'audio'"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, CONTENT, "not 'text'"),
    ({"messages": [EMPTY | {"content": [{"type": "image_url"}]}]}, f"{CONTENT}[0].image_url", "is required"),
    (call(function={"arguments": "{}"}), f"{CALL}.function.name", "is required"),
    (call(function="a"), f"{CALL}.function.name", "is required"),
    (call(type="custom"), f"{CALL}.type", "must be function"),
    (call(function={"name": "a", "arguments": {}}), f"{CALL}.function", "that are strings"),
    (call(function={"name": {"a": 1}}), f"{CALL}.function", "that are strings"),
    (call(function={"name": "a", "arguments": LONGEST + " "}), f"{CALL}.function.arguments", "at most"),
    ({"tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"tools": [TOOL, OTHER, TOOL]}, "tools", "two functions of the name 'weather'"),
    ({"tools": [TOOL], "tool_choice": OTHER}, "tool_choice", "'time' is none of the tools: weather"),
    ({"tools": [{"type": "web"}]}, "tools[0].type", "not 'web'"),
    ({"tools": [TOOL, {"type": "function"}]}, "tools[1].function", "is required"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "regex"),
    ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools", "of its own"),
)  # fmt: skip


def test_what_contradicts_itself_or_cannot_be_shown_is_refused():
    for fields, param, said in REFUSED:
        with pytest.raises(ApiError, match=said) as refused:
            asked_chat(body(**fields), style())
        assert refused.value.param == param


def test_arguments_may_be_as_long_as_is_read():
    assert asked_chat(body(**call(function={"name": "a", "arguments": LONGEST})), style()).chat.messages


def test_a_budget_needs_a_token_that_ends_reasoning():
    with pytest.raises(ApiError, match="no token that ends reasoning"):
        most_reasoning_tokens(body(thinking_token_budget=5), style(thinks=True, ends=False))
