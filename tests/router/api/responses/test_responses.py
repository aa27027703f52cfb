"""Responses, as OpenAI's own client asks for them and reads them."""

import json

import openai
import pytest
from pydantic import BaseModel

from mesh.wire.requests import FinishReason
from router.generation import Fault, Overloaded, RequestFailed
from tests.router.api.conftest import batch
from tests.router.api.openai.chat.conftest import prompt_of

END = "<|im_end|>"
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


class Person(BaseModel):
    name: str


async def test_responds(gateway, client):
    tokens = gateway.says("Hello there" + END, FinishReason.STOP, cached=2)
    response = await client.responses.create(
        model="tiny", input="Hello", instructions="Be brief", temperature=0.5, max_output_tokens=50, metadata={"a": "b"}
    )
    assert (response.output_text, response.status, response.metadata) == ("Hello there", "completed", {"a": "b"})
    assert response.id.startswith("resp_")
    (spec,) = gateway.router.specs
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens) == (len(spec.prompt), len(tokens))
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (2, 0)
    assert (spec.sampling.temperature, spec.sampling.max_tokens) == (0.5, 50)
    assert prompt_of(gateway) == (
        f"<|im_start|>system\nBe brief{END}\n<|im_start|>user\nHello{END}\n<|im_start|>assistant\n"
    )


async def test_an_answer_that_is_cut_off_is_incomplete(gateway, client):
    gateway.says("Hello there", FinishReason.LENGTH)
    response = await client.responses.create(model="tiny", input="Hello")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output[0].status == "incomplete"
    async with client.responses.stream(model="tiny", input="Hello") as stream:
        kinds = [event.type async for event in stream]
    assert kinds[-1] == "response.incomplete"


async def test_streams_all_events_in_their_order(gateway):
    gateway.says("Hi" + END, FinishReason.STOP)
    response = await gateway.client.post("/v1/responses", json={"model": "tiny", "input": "Hello", "stream": True})
    parts = [part.split("\n") for part in response.text.split("\n\n") if part]
    events = [json.loads(data.removeprefix("data: ")) for _, data in parts]
    assert [name.removeprefix("event: ") for name, _ in parts] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event["type"].removeprefix("response.") for event in events))
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hi"


async def test_the_streaming_helper_reads_it(gateway, client):
    gateway.says("Hello there" + END, FinishReason.STOP)
    async with client.responses.stream(model="tiny", input=[{"role": "user", "content": "Hello"}]) as stream:
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
        response = await stream.get_final_response()
    assert text == "Hello there" == response.output_text


async def test_a_loop_of_calls_and_outputs(gateway, client):
    gateway.says("Let me see. " + CALL + END, FinishReason.STOP)
    asked = {"model": "tiny", "tools": [WEATHER]}
    async with client.responses.stream(input="Weather?", **asked) as stream:
        kinds = {event.type async for event in stream}
        streamed = await stream.get_final_response()
    response = await client.responses.create(input="Weather?", **asked)
    assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= kinds
    assert [item.type for item in response.output] == ["message", "function_call"]
    call, other = response.output[1], streamed.output[1]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    assert (call.name, call.arguments) == (other.name, other.arguments)
    gateway.says("Sunny" + END, FinishReason.STOP)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sun"}
    history = [{"role": "user", "content": "Weather?"}, *(item.to_dict() for item in response.output), output]
    whole = await client.responses.create(input=history, **asked)
    from_history = prompt_of(gateway)
    follow_up = await client.responses.create(input=[output], previous_response_id=response.id, **asked)
    assert whole.output_text == follow_up.output_text == "Sunny"
    assert prompt_of(gateway) == from_history
    assert f"Let me see.\n{CALL}" in from_history
    assert "<tool_response>\nSun\n</tool_response>" in from_history


async def test_parses_forms(gateway, client):
    gateway.says('{"name": "Ada"}' + END, FinishReason.STOP)
    response = await client.responses.parse(model="tiny", input="Who?", text_format=Person)
    assert response.output_parsed == Person(name="Ada")
    assert "json_schema" in gateway.router.specs[-1].sampling.grammar


async def test_reasoning_is_an_item(thinker, thinking_client):
    thinker.says("<think>\nWell\n</think>\n\nHello" + END, FinishReason.STOP)
    response = await thinking_client.responses.create(model="tiny", input="Hi", reasoning={"effort": "low"})
    async with thinking_client.responses.stream(model="tiny", input="Hi") as stream:
        kinds = {event.type async for event in stream}
        streamed = await stream.get_final_response()
    for found in (response, streamed):
        assert [item.type for item in found.output] == ["reasoning", "message"]
        assert found.output[0].content[0].text == "Well"
    assert {"response.reasoning_text.delta", "response.reasoning_text.done"} <= kinds
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    await thinking_client.responses.create(model="tiny", input="And?", previous_response_id=response.id)
    assert "<think>\nWell\n</think>\n\nHello" in prompt_of(thinker)


async def test_responses_are_kept_listed_and_forgotten(gateway, client):
    gateway.says("Hello" + END, FinishReason.STOP)
    async with client.responses.stream(model="tiny", input="One") as stream:
        first = await stream.get_final_response()
    second = await client.responses.create(model="tiny", input="Two", previous_response_id=first.id)
    assert (await client.responses.retrieve(second.id)).to_dict() == second.to_dict()
    items = [item async for item in client.responses.input_items.list(second.id, order="asc", limit=2)]
    assert [item.role for item in items] == ["user", "assistant", "user"]
    assert items[0].content[0].text == "One"
    assert len({item.id for item in items}) == 3
    await client.responses.delete(second.id)
    for ask in (
        client.responses.retrieve(second.id),
        client.responses.delete(second.id),
        client.responses.create(model="tiny", input="Three", previous_response_id=second.id),
    ):
        with pytest.raises(openai.NotFoundError, match="keeps no response"):
            await ask


async def test_what_is_not_to_be_kept_is_not(gateway, client):
    response = await client.responses.create(model="tiny", input="One", store=False)
    assert response.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_a_store_that_fails_costs_no_answer(gateway, client, stored):
    stored.path.mkdir()
    response = await client.responses.create(model="tiny", input="One")
    assert (response.to_dict()["store"], response.output_text != "") == (False, True)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"background": True}, "background: is not supported"),
        ({"conversation": "conv_1"}, "conversation: is not supported"),
        ({"prompt": {"id": "p"}}, "prompt: is not supported"),
        ({"top_logprobs": 2}, "top_logprobs: is not supported"),
        ({"include": ["message.output_text.logprobs"]}, "include: 'message.output_text.logprobs' is not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type: only functions are supported, not 'web_search'"),
        ({"tools": [WEATHER | {"name": "no blanks"}]}, "tools[0].name: "),
        ({"tools": [WEATHER], "tool_choice": {"type": "web_search"}}, "tool_choice.type: 'web_search' is not"),
        ({"input": []}, "input: must not be empty"),
        ({"input": [1]}, "input: must be a string"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].image_url: is"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type: items of the type 'computer_call' are not"),
        ({"input": [{"type": "function_call_output", "output": "a"}]}, "input[0].call_id: is required"),
        ({"max_output_tokens": 10_000_000}, "max_output_tokens: must be at most 1000000"),
        ({"input": [{"role": "user", "content": "go away"}]}, "input: the model's chat template does not"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema: is required"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "no"}}}}, "text.format: "),
    ],
)
async def test_what_is_wrong_is_told_by_its_own_name(gateway, more, says):
    response = await gateway.client.post("/v1/responses", json={"model": "tiny", "input": "Hi"} | more)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(says)
    assert not gateway.router.specs


async def test_errors_are_those_of_the_client(gateway, client):
    gateway.router.refusal = Overloaded("too much", 2.0)
    with pytest.raises(openai.RateLimitError):
        await client.responses.create(model="tiny", input="Hi")


async def test_an_error_within_a_stream(gateway):
    gateway.router.script = lambda spec: [batch(10), RequestFailed("it broke", Fault.SERVER)]
    response = await gateway.client.post("/v1/responses", json={"model": "tiny", "input": "Hello", "stream": True})
    *_, error, failed = [json.loads(part.partition("data: ")[2]) for part in response.text.split("\n\n") if part]
    assert (error["type"], error["message"]) == ("error", "it broke")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["message"] == "it broke"
