"""What bodies of the Messages API become as chats, and what is refused by name."""

from typing import Any

import msgspec
import pytest

from router.api.errors import ApiError
from router.api.messages.bodies import CountBody, MessagesBody
from router.api.messages.translation import chat_of_messages
from router.api.openai.input.bodies import ChatBody, NamedTool

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"name": "weather", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "Sunny"}


def chat(**fields: Any) -> ChatBody:
    body = {"model": "tiny", "max_tokens": 100, "messages": HELLO} | fields
    return chat_of_messages(read(body, MessagesBody))


def read(body: dict[str, Any], kind: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def user(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


def assistant(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    return [*HELLO, {"role": "assistant", "content": list(blocks)}]


def shown(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(one.role, one.content) for one in chat(messages=messages).messages]


def image(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": source}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_chat_has_what_was_asked_for_and_nothing_else():
    plain = chat()
    assert (plain.model, plain.max_completion_tokens, plain.tools, plain.tool_choice) == ("tiny", 100, None, None)
    assert (plain.response_format, plain.reasoning_effort, plain.continue_final_message) == (None, None, None)
    asked = chat(temperature=0.5, top_k=5, top_p=0.9, stream=True, stop_sequences=["END"])
    assert (asked.temperature, asked.top_k, asked.top_p, asked.stream, asked.stop) == (0.5, 5, 0.9, True, ["END"])


def test_a_count_has_no_sampling():
    counted = chat_of_messages(read({"model": "tiny", "messages": HELLO}, CountBody))
    assert (counted.max_completion_tokens, counted.messages[0].content) == (None, "Hello")


def test_the_system_prompt_comes_first():
    assert [one.content for one in chat(system="Brief").messages] == ["Brief", "Hello"]
    assert chat(system=[text("a"), text("b")]).messages[0].content == "a\nb"
    assert len(chat(system="").messages) == 1


def test_a_last_word_of_the_assistant_is_continued():
    assert chat(messages=[*HELLO, {"role": "assistant", "content": "I am"}]).continue_final_message is True


def test_formats_are_schemas_whichever_field_has_them():
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    for fields in ({"output_config": {"format": wanted}}, {"output_format": wanted}):
        found = chat(**fields).response_format
        assert found is not None
        assert (found.type, found.json_schema.schema_) == ("json_schema", {"type": "object"})  # type: ignore[union-attr]


# --- thinking ---------------------------------------------------------------------------------------------------------


EFFORTS = (
    ({"type": "disabled"}, "low", "none"),
    ({"type": "enabled", "budget_tokens": 50}, None, "high"),
    ({"type": "enabled", "budget_tokens": 50}, "low", "low"),
    ({"type": "adaptive"}, None, None),
    (None, "max", "xhigh"),
    (None, "medium", "medium"),
)  # fmt: skip


def test_how_much_is_thought():
    for thinking, effort, found in EFFORTS:
        fields = {} if thinking is None else {"thinking": thinking}
        fields |= {} if effort is None else {"output_config": {"effort": effort}}
        assert chat(**fields).reasoning_effort == found, fields


def test_a_budget_of_thinking_is_passed_on_and_may_be_hidden():
    enabled = {"type": "enabled", "budget_tokens": 99}
    assert chat(thinking=enabled).thinking_token_budget == 99
    assert chat(thinking=enabled).include_reasoning is None
    assert chat(thinking=enabled | {"display": "omitted"}).include_reasoning is False
    assert chat(thinking={"type": "disabled"}).thinking_token_budget is None


# --- tools ------------------------------------------------------------------------------------------------------------


def test_tools_are_functions_with_what_they_say():
    [one, other] = chat(tools=[TOOL, TOOL | {"type": "custom", "description": "d", "strict": True}]).tools or []
    assert one == {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    assert (other["function"]["description"], other["function"]["strict"]) == ("d", True)


def test_choices_of_tools_are_said_as_chats_say_them():
    def choice(**fields: Any) -> tuple[Any, Any]:
        found = chat(tools=[TOOL], tool_choice=fields)
        return found.tool_choice, found.parallel_tool_calls

    assert choice(type="any") == ("required", None)
    assert choice(type="auto", disable_parallel_tool_use=True) == ("auto", False)
    assert choice(type="none") == ("none", None)
    named, is_parallel = choice(type="tool", name="weather", disable_parallel_tool_use=True)
    assert isinstance(named, NamedTool)
    assert (named.function.name, is_parallel) == ("weather", False)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_one_text_is_words_and_more_are_parts():
    assert shown(user(text("a"))) == [("user", "a")]
    [(_, parts)] = shown(user(text("a"), image(type="url", url="http://a/b")))
    assert [(part.type, part.text or part.image_url) for part in parts] == [("text", "a"), ("image_url", "http://a/b")]
    assert shown(user()) == [("user", [])]
    [(_, [one])] = shown(user(image(type="base64", media_type="image/png", data="AA")))
    assert one.image_url == "data:image/png;base64,AA"


def test_results_are_messages_of_their_own_in_their_order():
    failed = RESULT | {"is_error": True, "content": [text("x"), text("y")]}
    found = shown(user(text("a"), RESULT, failed, RESULT | {"content": None}, text("b")))
    assert found == [("user", "a"), ("tool", "Sunny"), ("tool", "Error: x\ny"), ("tool", ""), ("user", "b")]
    assert shown(user(RESULT)) == [("tool", "Sunny")]
    assert chat(messages=user(RESULT)).messages[0].tool_call_id == "t1"


def test_an_assistant_has_said_thought_and_called():
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    told = chat(messages=[*assistant(thought, text("a"), text("b"), CALL), *user(RESULT)]).messages[1]
    assert (told.content, told.reasoning_content) == ("a\nb", "hm")
    arguments = {"name": "weather", "arguments": '{"city":"Paris"}'}
    assert told.tool_calls == [{"id": "t1", "type": "function", "function": arguments}]
    called = chat(messages=[*assistant(CALL), *user(RESULT)]).messages[1]
    assert (called.content, called.reasoning_content) == (None, None)
    silent = chat(messages=assistant()).messages[1]
    assert (silent.content, silent.tool_calls) == ("", None)


# --- what is refused --------------------------------------------------------------------------------------------------

WHERE = "messages[0].content[0]"
CALLED = "messages[1].content[0]"


REFUSED = (
    ({"container": "c"}, "container", "is not supported by this server"),
    ({"mcp_servers": [{"a": 1}]}, "mcp_servers", "is not supported by this server"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "is required"),
    ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "thinking.budget_tokens", r"max_tokens \(100\)"),
    ({"tools": [TOOL | {"type": "web_search"}]}, "tools[0].type", "'web_search' is not supported"),
    ({"tools": [TOOL, {"name": "a"}]}, "tools[1].input_schema", "is required"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name", "is required"),
    ({"messages": assistant(CALL)}, "messages", "their results must follow"),
    ({"messages": user({"type": "document"})}, f"{WHERE}.type", "'document' are not supported here"),
    ({"messages": user({"type": "text"})}, f"{WHERE}.text", "is required"),
    ({"messages": user({"type": "image"})}, f"{WHERE}.source", "is required"),
    ({"messages": user(image(type="file"))}, f"{WHERE}.source.type", "use base64"),
    ({"messages": user(image(type="url"))}, f"{WHERE}.source.url", "is required"),
    ({"messages": user(image(type="base64"))}, f"{WHERE}.source.data", "is required"),
    ({"messages": user({"type": "tool_result"})}, f"{WHERE}.tool_use_id", "is required"),
    ({"messages": user(RESULT | {"content": [{"type": "image"}]})}, f"{WHERE}.content[0].type", "only text"),
    ({"messages": user(RESULT | {"content": [{"type": "text"}]})}, f"{WHERE}.content[0].text", "is required"),
    ({"messages": assistant({"type": "image"})}, f"{CALLED}.type", "'image' are not supported here"),
    ({"messages": assistant(CALL | {"id": ""})}, f"{CALLED}.id", "is required"),
    ({"messages": assistant(CALL | {"name": ""})}, f"{CALLED}.name", "is required"),
    ({"messages": assistant(CALL | {"input": [1]})}, f"{CALLED}.input", "must be an object"),
    ({"messages": assistant({"type": "tool_use", "id": "a", "name": "b"})}, f"{CALLED}.input", "must be an object"),
)  # fmt: skip


def test_what_no_chat_can_say_is_refused_by_name():
    for fields, param, said in REFUSED:
        with pytest.raises(ApiError, match=said) as refused:
            chat(**fields)
        assert refused.value.param == param


def test_fields_that_are_not_supported_may_be_empty():
    for empty in (None, [], {}):
        assert chat(mcp_servers=empty, context_management=empty).model == "tiny"
