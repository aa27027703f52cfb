import json

import pytest

from router.chat.calls.typed_values import is_text, json_of, json_text, kinds_of


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"const": True}, {"boolean"}),
        ({"anyOf": [{"type": "number"}, {"$ref": "#/$defs/word"}]}, {"number", "string"}),
        ({"anyOf": [{"type": "number"}, {}]}, set()),
        ({"$ref": "#/$defs/word"}, {"string"}),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"$ref": "elsewhere"}, set()),
        ({}, set()),
        (True, set()),
    ],
)
def test_schemas_tell_types(schema: object, kinds: set[str]):
    root = {"$defs": {"word": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert kinds_of(schema, root) == kinds
    assert is_text(schema, root) == (kinds == {"string"})


@pytest.mark.parametrize(
    ("text", "kinds", "value"),
    [
        ("12", {"integer"}, 12),
        ("12", {"number"}, 12),
        ("12", {"string", "null"}, "12"),
        ("null", {"string", "null"}, None),
        ("None", {"null"}, None),
        ("True", {"boolean"}, True),
        (' {"a": [1]} ', {"object"}, {"a": [1]}),
        ("[1, 2", {"array"}, "[1, 2"),
        ('"quoted"', {"string", "integer"}, '"quoted"'),
        ("NaN", {"number"}, "NaN"),
        ("12", set(), 12),
        ("words", set(), "words"),
        ("words", {"integer"}, "words"),
    ],
)
def test_bare_values_become_json(text: str, kinds: set[str], value: object):
    assert json.loads(json_of(text, frozenset(kinds))) == value


def test_json_stays_as_it_is_written():
    assert json_of('{"a":1,  "b":1e999}', frozenset({"object"})) == '{"a":1,  "b":1e999}'


def test_halves_of_characters_are_written_as_escapes():
    assert json_text("é") == '"é"'
    assert json_text("é\ud800") == '"\\u00e9\\ud800"'
    json_text("é\ud800").encode()
