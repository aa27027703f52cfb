"""Sections in which a model thinks: told apart from the answer, and bounded."""

import json

import pytest

from mesh.wire.requests import FinishReason
from tests.router.api.openai.chat.conftest import prompt_of

END = "<|im_end|>"
THOUGHT = "<think>\nLet me see\n</think>\n\nHello there" + END


async def test_reasoning_is_apart_from_content(thinker):
    thinker.says(THOUGHT, FinishReason.STOP)
    body = (await thinker.chat()).json()
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Let me see", "Hello there")
    num_reasoning = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < num_reasoning < body["usage"]["completion_tokens"]


async def test_reasoning_is_streamed(thinker, events):
    thinker.says(THOUGHT, FinishReason.STOP)
    deltas = [chunk["choices"][0]["delta"] for chunk in events(await thinker.chat(stream=True))]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me see"
    assert "".join(delta.get("content", "") for delta in deltas) == "Hello there"


async def test_an_answer_may_begin_in_reasoning(thinker):
    """Some templates open the section, so that the model cannot do without."""
    thinker.says("Let me see\n</think>\nHello" + END, FinishReason.STOP)
    response = await thinker.chat(chat_template_kwargs={"opens": True})
    message = response.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Let me see", "Hello")


async def test_who_does_not_want_to_see_reasoning_does_not(thinker):
    thinker.says(THOUGHT, FinishReason.STOP)
    message = (await thinker.chat(include_reasoning=False)).json()["choices"][0]["message"]
    assert "reasoning_content" not in message
    assert message["content"] == "Hello there"


async def test_reasoning_of_the_history_reaches_the_template(thinker):
    messages = [
        {"role": "assistant", "content": "Hi", "reasoning_content": "A greeting"},
        {"role": "user", "content": "?"},
    ]
    await thinker.chat(messages=messages)
    assert "<think>\nA greeting\n</think>" in prompt_of(thinker)


async def test_no_effort_switches_reasoning_off(thinker):
    thinker.says("Hello" + END, FinishReason.STOP)
    message = (await thinker.chat(reasoning_effort="none")).json()["choices"][0]["message"]
    assert prompt_of(thinker).endswith("<think>\n\n</think>\n\n")
    assert message["content"] == "Hello"


@pytest.mark.parametrize(
    ("body", "most"), [({"thinking_token_budget": 77}, 77), ({"reasoning_effort": "low"}, 1024), ({}, None)]
)
async def test_a_budget_is_part_of_the_grammar(thinker, body, most):
    assert (await thinker.chat(**body)).status_code == 200
    grammar = thinker.router.specs[-1].sampling.grammar
    assert (grammar == "") if most is None else (f"[max_tokens={most}]" in grammar)


async def test_a_form_begins_after_reasoning(thinker):
    assert (await thinker.chat(response_format={"type": "json_object"})).status_code == 200
    first, form = json.loads(thinker.router.specs[-1].sampling.grammar)["grammars"]
    assert "@form" in first["lark_grammar"]
    assert form["name"] == "form"


async def test_a_form_has_no_reasoning_before_it_where_the_prompt_has_closed_it(thinker):
    await thinker.chat(response_format={"type": "json_object"}, reasoning_effort="none")
    first, _ = json.loads(thinker.router.specs[-1].sampling.grammar)["grammars"]
    start = next(line for line in first["lark_grammar"].splitlines() if line.startswith("start:"))
    assert start.count("<[") == 0


async def test_a_model_that_does_not_think_takes_any_effort(gateway):
    assert (await gateway.chat(reasoning_effort="high", thinking_token_budget=5)).status_code == 200
    assert gateway.router.specs[-1].sampling.grammar == ""
