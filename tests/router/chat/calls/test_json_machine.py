"""JSON that is read character by character: what is found does not depend on how it was cut."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.chat.calls.json_machine import Machine, MalformedCallError, expect, pass_object, read_call, read_string

OBJECTS = (
    {},
    {"a": {"b": [1, "]}"]}},
    {"quote": 'a "b" \\', "}": "\\"},
    {"deep": [[{"x": [{}]}], None, True]},
    {"odd": '"}'},
    {"odd": '"}'},
)


def run(machine: Machine[object], text: str) -> tuple[object, str]:
    """Return what the machine returns, and what it left of the text."""
    next(machine)
    for number, character in enumerate(text, 1):
        try:
            machine.send(character)
        except StopIteration as ended:
            return ended.value, text[number:]
    raise AssertionError("it wants more")


def call(text: str) -> tuple[str, str, str]:
    """Return the name, the arguments, and what is left."""
    names, arguments = list[str](), list[str]()
    _, left = run(read_call(names.append, arguments.append), text[1:])
    return "".join(names), "".join(arguments), left


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("value", OBJECTS, ids=str)
def test_an_object_is_handed_on_as_it_is_written(value: dict[str, object], indent: int | None):
    text, parts = json.dumps(value, indent=indent), list[str]()
    assert run(pass_object(parts.append), text[1:] + "rest") == (None, "rest")
    assert "".join(parts) == text


@settings(max_examples=25)
@given(st.text(max_size=8))
def test_a_string_is_read_to_its_end(value: str):
    assert run(read_string(), json.dumps(value)[1:] + ",") == (value, ",")


@pytest.mark.parametrize("text", [r'"\x"', '"\n"', '"' + "x" * 5000 + '"'], ids=["escape", "line", "long"])
def test_what_is_no_name_is_no_call(text: str):
    with pytest.raises(MalformedCallError):
        run(read_string(), text[1:])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "arguments": {"a": "}"}}',
        '{"arguments":{"a": "}"},"name":"f"}',
        '{ "type" : "function" , "name" : "f" , "parameters" : {"a": "}"} }',
        '{"id": 7, "more": [{"name": "g"}], "name": "f", "arguments": {"a": "}"}}',
    ],
)
def test_a_call_has_a_name_and_arguments_in_any_order(text: str):
    assert call(f"{text} after") == ("f", '{"a": "}"}', " after")


def test_a_call_without_arguments_has_empty_ones():
    assert call('{"name": "f"}') == ("f", "{}", "")
    assert call('{"name": "f", "arguments": null}') == ("f", "{}", "")


def test_the_first_name_and_arguments_count():
    assert call('{"name": "f", "arguments": {}, "name": "g", "arguments": {"b": 1}}') == ("f", "{}", "")


@pytest.mark.parametrize(
    "text", ["{}", '{"arguments": {}}', '{"name": 5}', '{name: "f"}', '{"name" "f"}', '{"name": "f",}'], ids=str
)
def test_what_lacks_a_name_or_its_form_is_no_call(text: str):
    with pytest.raises(MalformedCallError):
        call(text)


def test_arguments_are_nested_only_so_deep():
    run(pass_object(lambda _: None), "[" * 255 + "]" * 255 + "}")
    with pytest.raises(MalformedCallError, match="nested"):
        run(pass_object(lambda _: None), "[" * 256 + "]" * 256 + "}")


def test_another_character_than_was_to_come_is_named():
    expect("{", "{")
    with pytest.raises(MalformedCallError, match=r"'x' where '\{'"):
        expect("x", "{")
