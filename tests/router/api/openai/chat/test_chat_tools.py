"""Chats with tools: what prompts show, what answers are read as, and what is refused."""

import json

import pytest

from mesh.wire.requests import FinishReason
from tests.router.api.openai.chat.conftest import prompt_of
from tests.router.api.test_errors import error_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
END = "<|im_end|>"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
IN_PARIS = {"name": "weather", "arguments": '{"city": "Paris"}'}


def calling(call):
    return {"role": "assistant", "tool_calls": [call]}


HISTORY = [
    {"role": "user", "content": "Weather in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Sunny"},
]


async def test_a_call_is_read_from_the_answer(gateway):
    gateway.says("Let me see. " + CALL + END, FinishReason.STOP)
    choice = (await gateway.chat(tools=[WEATHER])).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    assert (call["type"], call["function"]) == ("function", {"name": "weather", "arguments": '{"city": "Paris"}'})
    assert call["id"].startswith("call_")


async def test_a_streamed_call_assembles_to_the_same(gateway, events):
    gateway.says(CALL + "\n" + CALL.replace("Paris", "Rome") + END, FinishReason.STOP)
    chunks = [chunk["choices"][0] for chunk in events(await gateway.chat(tools=[WEATHER], stream=True))]
    calls = {}
    for delta in (chunk["delta"] for chunk in chunks):
        for part in delta.get("tool_calls", ()):
            call = calls.setdefault(part["index"], {"arguments": ""})
            call |= {key: part[key] for key in ("id", "type") if key in part}
            call["name"] = part["function"].get("name", call.get("name"))
            call["arguments"] += part["function"].get("arguments", "")
    assert [(call["name"], json.loads(call["arguments"])) for call in calls.values()] == [
        ("weather", {"city": "Paris"}),
        ("weather", {"city": "Rome"}),
    ]
    assert len({call["id"] for call in calls.values()}) == 2
    assert chunks[-1]["finish_reason"] == "tool_calls"
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == ""


async def test_an_answer_that_is_cut_off_says_so(gateway):
    gateway.says(CALL[:40], FinishReason.LENGTH)
    choice = (await gateway.chat(tools=[WEATHER])).json()["choices"][0]
    assert choice["finish_reason"] == "length"


async def test_without_calls_an_answer_is_text(gateway):
    gateway.says("Sunny, I guess" + END, FinishReason.STOP)
    choice = (await gateway.chat(tools=[WEATHER])).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "Sunny, I guess")
    assert "tool_calls" not in choice["message"]


async def test_where_no_tool_may_be_called_nothing_is_read_as_a_call(gateway):
    gateway.says(CALL + END, FinishReason.STOP)
    choice = (await gateway.chat(tools=[WEATHER], tool_choice="none")).json()["choices"][0]
    assert choice["message"]["content"] == CALL
    assert gateway.router.specs[-1].sampling.grammar == ""
    assert "weather" not in prompt_of(gateway)


async def test_tools_calls_and_results_are_in_the_prompt(gateway):
    """The template of this model shows no tools, so they are taught in words."""
    assert (await gateway.chat(messages=HISTORY, tools=[WEATHER])).status_code == 200
    prompt = prompt_of(gateway)
    assert json.dumps(WEATHER) in prompt
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>' in prompt
    assert "<tool_response>\nSunny\n</tool_response>" in prompt


async def test_a_history_with_calls_needs_no_tools(gateway):
    assert (await gateway.chat(messages=HISTORY)).status_code == 200
    assert '"city": "Paris"' in prompt_of(gateway)


@pytest.mark.parametrize(
    ("choice", "tools", "names"),
    [
        ("auto", [WEATHER, ADD], ["weather", "add"]),
        ("required", [WEATHER, ADD], ["weather", "add"]),
        ({"type": "function", "function": {"name": "add"}}, [WEATHER, ADD], ["add"]),
    ],
)
async def test_the_grammar_has_the_tools_that_may_be_called(gateway, choice, tools, names):
    assert (await gateway.chat(tools=tools, tool_choice=choice)).status_code == 200
    grammar = gateway.router.specs[-1].sampling.grammar
    assert [
        name for name in ("weather", "add") if rf"\"{name}\"" in json.loads(grammar)["grammars"][0]["lark_grammar"]
    ] == names


async def test_a_schema_that_cannot_be_followed_matters_to_strict_tools_only(gateway):
    bad = {"type": "function", "function": {"name": "odd", "parameters": {"type": "nosuch"}}}
    assert (await gateway.chat(tools=[bad, WEATHER])).status_code == 200
    strict = {"type": "function", "function": {**bad["function"], "strict": True}}
    error_of(await gateway.chat(tools=[strict, WEATHER]), 400, param="tools")


def large(number):
    return {"type": "object", "properties": {f"property_{number}_{index}": {"type": "string"} for index in range(400)}}


async def test_large_schemas_are_followed_loosely_unless_they_are_strict(gateway):
    tools = [{"type": "function", "function": {"name": f"f{index}", "parameters": large(index)}} for index in range(8)]
    assert (await gateway.chat(tools=tools)).status_code == 200
    assert "property_1_1" not in gateway.router.specs[-1].sampling.grammar
    strict = [{**tool, "function": {**tool["function"], "strict": True}} for tool in tools]
    assert "too large" in error_of(await gateway.chat(tools=strict), 400, param="tools")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [ADD, ADD]}, "tools"),
        ({"tools": [ADD] * 129}, "tools"),
        ({"tools": [ADD], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [ADD], "ignore_eos": True}, "ignore_eos"),
        ({"tools": [ADD], "tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"guided_json": {}}, "guided_json"),
        ({"chat_template": "{{ x }}"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}]},
            "messages[0].tool_calls[0].type",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [3]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "user", "content": "x", "more": "y" * 17_000}]}, "messages[0].more"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        (
            {"messages": [{"role": "assistant", "content": ""}], "continue_final_message": True},
            "continue_final_message",
        ),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(gateway, body, param):
    error_of(await gateway.chat(**body), 400, param=param)


@pytest.mark.parametrize(
    "body",
    [
        {"modalities": ["text"]}, {"use_beam_search": False}, {"functions": []}, {"verbosity": "medium"},
        {"skip_special_tokens": True}, {"length_penalty": 1.0}, {"audio": None}, {"tool_choice": "auto"},
        {"reasoning_effort": "low"}, {"parallel_tool_calls": True},
        {"messages": [{"role": "user", "content": "x", "audio": None, "annotations": []}]},
    ],
)  # fmt: skip
async def test_what_happens_anyway_may_be_asked_for(gateway, body):
    assert (await gateway.chat(**body)).status_code == 200


async def test_an_answer_may_go_on_with_the_last_message(gateway):
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "The answer is"}]
    assert (await gateway.chat(messages=messages, continue_final_message=True)).status_code == 200
    assert prompt_of(gateway).endswith("<|im_start|>assistant\nThe answer is")


async def test_what_openais_client_parsed_of_a_call_is_not_read(gateway):
    await gateway.chat(messages=HISTORY, tools=[WEATHER])
    plain = prompt_of(gateway)
    call = {**HISTORY[1]["tool_calls"][0]["function"], "parsed_arguments": {"city": ["Paris"]}}
    parsed = calling({"id": "c1", "type": "function", "function": call})
    response = await gateway.chat(messages=[HISTORY[0], parsed, HISTORY[2]], tools=[WEATHER])
    assert (response.status_code, prompt_of(gateway)) == (200, plain)
