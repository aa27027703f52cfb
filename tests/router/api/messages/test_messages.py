"""Messages, as Anthropic's own client asks for them and reads them."""

import anthropic
import pytest

from mesh.wire.requests import FinishReason
from router.generation import Fault, NoEngines, Overloaded, RequestFailed
from tests.router.api.conftest import batch
from tests.router.api.openai.chat.conftest import prompt_of

END = "<|im_end|>"
HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ASKED = {"model": "tiny", "max_tokens": 100, "messages": HELLO}


async def test_answers(gateway, client):
    tokens = gateway.says("Hello there" + END, FinishReason.STOP, cached=2)
    message = await client.messages.create(
        **ASKED, system="Be brief", extra_body={"temperature": 0.5, "top_k": 5, "top_p": 0.9}
    )
    (block,) = message.content
    assert (block.type, block.text) == ("text", "Hello there")
    assert (message.role, message.model, message.stop_reason, message.stop_sequence) == (
        "assistant", "tiny", "end_turn", None,
    )  # fmt: skip
    (spec,) = gateway.router.specs
    assert message.id.startswith("msg_")
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens == len(spec.prompt)
    assert (message.usage.cache_read_input_tokens, message.usage.output_tokens) == (2, len(tokens))
    assert (spec.sampling.temperature, spec.sampling.top_k, spec.sampling.max_tokens) == (0.5, 5, 100)
    assert prompt_of(gateway) == (
        f"<|im_start|>system\nBe brief{END}\n<|im_start|>user\nHello{END}\n<|im_start|>assistant\n"
    )


async def test_streams(gateway, client):
    gateway.says("Hello there", FinishReason.LENGTH)
    async with client.messages.stream(**ASKED) as stream:
        text = "".join([text async for text in stream.text_stream])
        message = await stream.get_final_message()
    assert text == "Hello there" == message.content[0].text
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens > 0


async def test_events_come_in_their_order(gateway):
    gateway.says("Hi", FinishReason.LENGTH)
    response = await gateway.client.post("/v1/messages", json=ASKED | {"stream": True})
    names = [line.removeprefix("event: ") for line in response.text.split("\n") if line.startswith("event: ")]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert set(names[3:-3]) == {"content_block_delta"}
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_a_loop_of_calls_and_results(gateway, client):
    gateway.says("Let me see. " + CALL + END, FinishReason.STOP)
    asked = ASKED | {"tools": [WEATHER]}
    async with client.messages.stream(**asked) as stream:
        message = await stream.get_final_message()
    whole = await client.messages.create(**asked)
    assert [block.type for block in message.content] == ["text", "tool_use"] == [block.type for block in whole.content]
    call = message.content[1]
    assert (call.name, call.input, message.stop_reason) == ("weather", {"city": "Paris"}, "tool_use")
    assert (whole.content[1].name, whole.content[1].input, whole.stop_reason) == ("weather", call.input, "tool_use")
    assert call.id.startswith("toolu_")
    gateway.says("Sunny" + END, FinishReason.STOP)
    history = [
        *HELLO,
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Sun, 20 degrees"}]},
    ]
    last = await client.messages.create(**asked | {"messages": history})
    assert last.content[0].text == "Sunny"
    assert CALL in prompt_of(gateway)
    assert "<tool_response>\nSun, 20 degrees\n</tool_response>" in prompt_of(gateway)


async def test_results_may_be_blocks_or_errors(gateway, client):
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "One"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "Two", "is_error": True},
        {"type": "text", "text": "Go on"},
    ]
    calls = [{"type": "tool_use", "id": name, "name": "weather", "input": {}} for name in "ab"]
    messages = [*HELLO, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    await client.messages.create(**ASKED | {"messages": messages, "tools": [WEATHER]})
    shown = prompt_of(gateway)
    assert shown.index("One") < shown.index("Error: Two") < shown.index("Go on")


@pytest.mark.parametrize(
    ("choice", "has_grammar"),
    [({"type": "any"}, True), ({"type": "tool", "name": "weather"}, True), ({"type": "none"}, False)],
)
async def test_choices_of_tools(gateway, client, choice, has_grammar):
    await client.messages.create(**ASKED, tools=[WEATHER], tool_choice=choice)
    assert bool(gateway.router.specs[-1].sampling.grammar) == has_grammar


async def test_a_call_that_is_cut_off_is_left_out(gateway, client):
    gateway.says(CALL[:55], FinishReason.LENGTH)
    message = await client.messages.create(**ASKED, tools=[WEATHER])
    assert (message.content, message.stop_reason) == ([], "max_tokens")


async def test_the_stop_sequence_is_told(gateway, client):
    gateway.says("One. STOP here", FinishReason.LENGTH)
    message = await client.messages.create(**ASKED, stop_sequences=["never", "STOP"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")
    assert message.content[0].text == "One. "


async def test_a_last_message_of_the_assistant_is_continued(gateway, client):
    await client.messages.create(**ASKED | {"messages": [*HELLO, {"role": "assistant", "content": "I am"}]})
    assert prompt_of(gateway).endswith("<|im_start|>assistant\nI am")


async def test_thinking(thinker, thinking_client):
    thinker.says("<think>\nWell\n</think>\n\nHello" + END, FinishReason.STOP)
    asked = ASKED | {"thinking": {"type": "enabled", "budget_tokens": 50}}
    async with thinking_client.messages.stream(**asked) as stream:
        message = await stream.get_final_message()
    whole = await thinking_client.messages.create(**asked)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "Well"
    assert (message.content[0], message.content[1].text) == (whole.content[0], whole.content[1].text)
    assert message.content[0].signature
    history = [*HELLO, {"role": "assistant", "content": [block.to_dict() for block in message.content]}, *HELLO]
    await thinking_client.messages.create(**ASKED | {"messages": history})
    assert "<think>\nWell\n</think>\n\nHello" in prompt_of(thinker)


async def test_thinking_is_switched_off_or_not_shown(thinker, thinking_client):
    thinker.says("<think>Well</think>Hello" + END, FinishReason.STOP)
    message = await thinking_client.messages.create(**ASKED, thinking={"type": "adaptive", "display": "omitted"})
    assert [block.type for block in message.content] == ["text"]
    await thinking_client.messages.create(**ASKED, thinking={"type": "disabled"})
    assert prompt_of(thinker).endswith("<think>\n\n</think>\n\n")


async def test_forms(gateway, client):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"format": {"type": "json_schema", "schema": schema}}
    await client.messages.create(**ASKED, extra_body={"output_config": wanted})
    assert "json_schema" in gateway.router.specs[-1].sampling.grammar


async def test_tokens_are_counted(gateway, client):
    counted = await client.messages.count_tokens(model="tiny", messages=HELLO, system="Be brief", tools=[WEATHER])
    await client.messages.create(**ASKED, system="Be brief", tools=[WEATHER])
    assert counted.input_tokens == len(gateway.router.specs[-1].prompt)


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
USE = {"type": "tool_use", "id": "a", "name": "b", "input": {}}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"max_tokens": 0}, "max_tokens: must be at least 1"),
        ({"temperature": 1.5}, "temperature: must be at most 1"),
        ({"messages": []}, "messages: must not be empty"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages: image 1 is not supported: this service sees"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type: 'web_search_20250305'"),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema: is required"),
        ({"tools": [WEATHER | {"name": "no blanks"}]}, "tools[0].name: "),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "no"}}, "tool_choice: 'no' is none of the tools"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens: is required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "thinking.budget_tokens: must be less than max"),
        ({"mcp_servers": [{"url": "http://a"}]}, "mcp_servers: is not supported"),
        ({"max_tokens": 10_000_000}, "max_tokens: must be at most 1000000 for this model"),
        ({"messages": [*HELLO, {"role": "assistant", "content": [USE]}]}, "messages: end with calls of tools"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told_in_anthropics_shape(gateway, more, says):
    response = await gateway.client.post("/v1/messages", json=ASKED | more)
    body = response.json()
    assert (response.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert body["error"]["message"].startswith(says)
    assert not gateway.router.specs


async def test_errors_are_those_of_the_client(gateway, client):
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        await client.messages.create(**ASKED | {"model": "other"})
    gateway.router.refusal = Overloaded("too much", 2.0)
    with pytest.raises(anthropic.RateLimitError) as caught:
        await client.messages.create(**ASKED)
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    assert caught.value.response.headers["retry-after"] == "2"
    gateway.router.refusal = NoEngines("none", 2.0)
    with pytest.raises(anthropic.InternalServerError) as caught:
        await client.messages.create(**ASKED)
    assert caught.value.body["error"]["type"] == "overloaded_error"
    response = await gateway.client.get("/v1/messages")
    assert (response.status_code, response.json()["type"]) == (405, "error")


async def test_an_error_within_a_stream(gateway, client):
    gateway.router.script = lambda spec: [batch(10), RequestFailed("it broke", Fault.SERVER)]
    with pytest.raises(anthropic.APIStatusError, match="it broke"):
        async with client.messages.stream(**ASKED) as stream:
            await stream.get_final_message()
