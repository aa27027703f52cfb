"""Prompts of real templates are, byte for byte, those of transformers, from the body of a request on."""

import json
from datetime import datetime
from random import Random
from typing import Any

import pytest

from engines.models.text import template_environment
from engines.models.text.chat_template import ChatError
from router.api.openai.chat.asked import asked_chat
from router.api.openai.input.bodies import ChatBody
from router.api.openai.input.parsing import parse_body
from router.chat.teaching import taught
from tests.router.chat.corpus import NAMES, SPECIAL_TOKENS, RealTemplate, real_template
from tests.router.chat.histories import random_chat
from tests.seeds import seeds

HISTORIES = 80  # of each template


class Noon(datetime):
    """Templates that show the date show the same one to both."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2026, 7, 4, 12, tzinfo=tz)


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_environment, "datetime", Noon)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Noon)


@pytest.mark.parametrize("name", NAMES)
def test_prompts_equal_those_of_transformers(name: str):
    real = real_template(name)
    num_rendered = 0
    for seed in seeds(HISTORIES):
        body = random_chat(Random(seed))
        wanted = _of_transformers(real, body)
        got = _ours(real, body)
        assert got == wanted, f"{name}, seed {seed}: {json.dumps(body, ensure_ascii=False)}"
        num_rendered += wanted is not None
    assert num_rendered > HISTORIES // 4


def _ours(real: RealTemplate, body: dict[str, Any]) -> str | None:
    """The prompt by our whole path. None: refused."""
    parsed = parse_body(json.dumps(body).encode(), ChatBody)
    try:
        return real.template.render(asked_chat(parsed, real.style).chat)
    except ChatError:
        return None


def _of_transformers(real: RealTemplate, body: dict[str, Any]) -> str | None:
    """The prompt that transformers makes of what a client would give to it. None: the template does not take it."""
    from transformers.utils.chat_template_utils import render_jinja_template

    shown, tools = [_shown(real, message) for message in body["messages"]], body.get("tools")
    if real.style.is_taught:
        shown, tools = taught(shown, tools, real.style.calls, keeps_calls=real.style.keeps_calls), None
    for converted in (_with_objects, lambda message: message):
        messages = [converted(message) for message in shown]
        try:
            (prompt,), _ = render_jinja_template(
                [messages],
                tools=tools,
                documents=body.get("documents"),
                chat_template=real.source,
                continue_final_message=body.get("continue_final_message", False),
                add_generation_prompt=_adds_prompt(body),
                **SPECIAL_TOKENS | body.get("chat_template_kwargs", {}),
            )
        except Exception:
            continue
        return str(prompt)
    return None


def _adds_prompt(body: dict[str, Any]) -> bool:
    return not body.get("continue_final_message") and body.get("add_generation_prompt") is not False


def _shown(real: RealTemplate, message: dict[str, Any]) -> dict[str, Any]:
    """What differs on purpose: parts are joined, and developers are the system, where a template knows neither.

    Another such difference is that models whose template knows no tools are taught some (`router.chat.teaching`).
    """
    facts = real.style.facts
    assert facts is not None
    shown = dict(message)
    if isinstance(message.get("content"), list) and not facts.takes_parts:
        shown["content"] = "\n".join(part["text"] for part in message["content"])
    if message["role"] == "developer" and not facts.takes_developer:
        shown["role"] = "system"
    return shown


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = [
        call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return message | {"tool_calls": calls}
