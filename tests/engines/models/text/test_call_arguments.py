import pytest

from engines.models.text.call_arguments import arguments_object, with_objects


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("", {}),
        (" ", {}),
        ("[1]", "[1]"),
        ('{"a": ', '{"a": '),
        ("[" * 100_000, "[" * 100_000),
        ({"a": 1}, {"a": 1}),
        (None, None),
    ],
)
def test_only_objects_are_made_of_text(text: object, value: object):
    assert arguments_object(text) == value


def test_calls_without_arguments_stay_as_they_are():
    message = {"tool_calls": [{"id": "1"}, {"function": {"name": "f"}}, {"function": None}]}
    assert with_objects(message) == message


def test_messages_are_not_changed():
    message = {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    assert with_objects(message)["tool_calls"][0]["function"]["arguments"] == {}
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"
