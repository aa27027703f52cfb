"""Models whose template shows no tools are taught how to call them, in words."""

import json

import pytest

from router.chat.calls.formats import FORMATS, HERMES
from router.chat.teaching import taught

TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
HISTORY = [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "one"}]},
]


def test_tools_are_described_in_the_system_message():
    (system, _) = taught([{"role": "user", "content": "?"}], TOOLS, HERMES, keeps_calls=False)
    assert system["role"] == "system"
    assert json.dumps(TOOLS[0]) in system["content"]
    assert HERMES.write([("NAME", {"ARGUMENT": "VALUE"})]) in system["content"]


def test_what_the_system_says_stays():
    messages = [{"role": "system", "content": "Be kind."}]
    (system,) = taught(messages, TOOLS, HERMES, keeps_calls=False)
    assert system["content"].startswith("Be kind.\n\nYou have access")


def test_calls_and_results_of_the_history_become_text():
    _, called, result = taught(HISTORY, None, HERMES, keeps_calls=False)
    assert called == {
        "role": "assistant",
        "content": 'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    }
    assert result == {"role": "user", "content": "<tool_response>\none\n</tool_response>"}


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_written_in_the_format_that_is_read(name: str):
    _, called, _ = taught(HISTORY, None, FORMATS[name], keeps_calls=False)
    assert called["content"] == "Let me see.\n" + FORMATS[name].write([("f", {"a": 1})])


def test_templates_that_show_calls_get_them():
    assert taught(HISTORY, None, HERMES, keeps_calls=True) == HISTORY


def test_arguments_that_are_no_object_are_not_lost():
    call = {"function": {"name": "f", "arguments": '{"a": '}}
    (called,) = taught([{"role": "assistant", "tool_calls": [call]}], None, HERMES, keeps_calls=False)
    assert '"{\\"a\\": "' in called["content"]
