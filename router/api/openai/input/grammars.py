"""Turns OpenAI's `response_format` and vLLM's `structured_outputs` into grammars of llguidance.

Only text is made here, and no more of it than a grammar may have: whether it can be followed is found out elsewhere
(`router.api.openai.input.grammar_checks`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llguidance import regex_to_lark

from router.api.errors import ApiError, bad_parameter
from router.api.openai.input.bodies import JsonSchema, ResponseFormat, SamplingBody, StructuredOutputs

MAX_GRAMMAR_BYTES: Final = 32_768  # checking one of this size takes 0.04 s

_OPTIONS: Final = "x-guidance"  # a key of a schema, which llguidance looks for
_BLANKS: Final[JsonSchema] = {
    "whitespace_pattern": r"[\x20\x0A\x0D\x09]{0,16}"
}  # small models may go on with them for ever
_ANY_OBJECT: Final[JsonSchema] = {"type": "object"}
_ENCODER: Final = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The grammar of an answer. ``param`` of the body asks for it; ``text`` is for `Sampling.grammar`.

    ``form``: its one part, which another grammar may hold.
    """

    param: str
    text: str
    form: Mapping[str, Any] | None = None


def grammar_of(body: SamplingBody) -> Grammar | None:
    """Return the grammar that a body asks for. None: answers are free. Raise `ApiError` on what contradicts itself or
    is too large.
    """
    asked = [found for found in (_of_format(body.response_format), _of_outputs(body.structured_outputs)) if found]
    if not asked:
        return None
    if len(asked) > 1:
        raise bad_parameter("structured_outputs", "cannot be combined with response_format: each says what answers are")
    if body.ignore_eos:
        raise bad_parameter("ignore_eos", "cannot be true where an answer has a form, and ends when that is complete")
    return asked[0]


def _of_format(wanted: ResponseFormat | None) -> Grammar | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return _of_schema("response_format", _ANY_OBJECT)
    if wanted.json_schema is None:
        raise bad_parameter("response_format.json_schema", "is required", "missing_required_parameter")
    schema = wanted.json_schema.schema_
    return _of_schema("response_format.json_schema.schema", _ANY_OBJECT if schema is None else schema)


def _of_outputs(wanted: StructuredOutputs | None) -> Grammar | None:
    if wanted is None:
        return None
    forms: dict[str, Callable[[str], Grammar]] = {}
    if wanted.json_ is not None:
        schema = wanted.json_
        forms["json"] = lambda param: _of_schema(param, _parsed(param, schema))
    if wanted.json_object:
        forms["json_object"] = lambda param: _of_schema(param, _ANY_OBJECT)
    if wanted.regex is not None:
        regex = wanted.regex
        forms["regex"] = lambda param: _of_regex(param, regex)
    if wanted.choice is not None:
        choice = wanted.choice
        forms["choice"] = lambda param: _of_choice(param, choice)
    if wanted.grammar is not None:
        lark = wanted.grammar
        forms["grammar"] = lambda param: _of_lark(param, lark)
    if len(forms) > 1:
        raise bad_parameter("structured_outputs", "must be one of json, json_object, regex, choice and grammar")
    for name, make in forms.items():
        return make(f"structured_outputs.{name}")
    return None


def _of_regex(param: str, regex: str) -> Grammar:
    _check_size(param, len(regex))
    pattern: str = regex_to_lark(regex, "")
    return _of_lark(param, f"start: /{pattern}/")


def _of_choice(param: str, choice: Sequence[str]) -> Grammar:
    _check_size(param, sum(map(len, choice)))
    return _of_lark(param, "start: " + " | ".join(map(json.dumps, choice)))


def _of_lark(param: str, lark: str) -> Grammar:
    _check_size(param, len(lark))
    return _sized(param, {"lark_grammar": lark})


def _of_schema(param: str, schema: Mapping[str, Any]) -> Grammar:
    return _sized(param, {"json_schema": {_OPTIONS: _BLANKS, **schema}})


def _json(param: str, value: object) -> str:
    """Encode a schema in one go: encoding piece by piece costs the square of the depth."""
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise bad_parameter(param, "is nested too deeply") from None
    except ValueError as error:
        raise bad_parameter(param, f"is not JSON: {error}") from None


def _sized(param: str, form: Mapping[str, Any]) -> Grammar:
    text = _json(param, {"grammars": [form]})
    _check_size(param, len(text))
    return Grammar(param, text, form)


def _check_size(param: str, num_bytes: int) -> None:
    if num_bytes > MAX_GRAMMAR_BYTES:
        raise bad_parameter(param, f"can have at most {MAX_GRAMMAR_BYTES} characters")


def _parsed(param: str, schema: JsonSchema | str) -> JsonSchema:
    if not isinstance(schema, str):
        return schema
    _check_size(param, len(schema))
    try:
        parsed = json.loads(schema)
    except RecursionError:
        raise bad_parameter(param, "is nested too deeply") from None
    except ValueError as error:
        raise bad_parameter(param, f"is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise bad_parameter(param, "must be a JSON schema: an object")
    return parsed


def cannot_be_followed(grammar: Grammar, reason: str) -> ApiError:
    return bad_parameter(grammar.param, reason.removeprefix("the grammar "))
