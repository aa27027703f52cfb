"""What answers have to be: `response_format` of OpenAI and `structured_outputs` of vLLM, as grammars of llguidance."""

import json
from typing import Final

from llguidance import LLMatcher

from engines.grammars import reason_of
from router.api.bodies import JsonSchema, ResponseFormat, SamplingBody, StructuredOutputs
from router.api.errors import bad_parameter

MAX_GRAMMAR_BYTES: Final = 32_768  # checking one of this size takes 0.04 s

_OPTIONS: Final = "x-guidance"  # a key of a schema, which llguidance looks for
_BLANKS: Final[JsonSchema] = {
    "whitespace_pattern": r"[\x20\x0A\x0D\x09]{0,16}"
}  # small models may go on with them for ever
_ANY_OBJECT: Final[JsonSchema] = {"type": "object"}

Named = tuple[str, str]  # the parameter that asks for it, and the grammar


def grammar_of(body: SamplingBody) -> str:
    """For `Sampling.grammar`. Raise `ApiError` on what contradicts itself or cannot be followed."""
    asked = [found for found in (_of_format(body.response_format), _of_outputs(body.structured_outputs)) if found]
    if not asked:
        return ""
    if len(asked) > 1:
        raise bad_parameter("structured_outputs", "cannot be combined with response_format: each says what answers are")
    if body.ignore_eos:
        raise bad_parameter("ignore_eos", "cannot be true where an answer has a form, and ends when that is complete")
    [(param, grammar)] = asked
    if len(grammar) > MAX_GRAMMAR_BYTES:
        raise bad_parameter(param, f"can have at most {MAX_GRAMMAR_BYTES} characters, not {len(grammar)}")
    if reason := LLMatcher.validate_grammar(grammar):
        raise bad_parameter(param, f"cannot be followed: {reason_of(reason)}")
    return grammar


def _of_format(wanted: ResponseFormat | None) -> Named | None:
    """None: answers are free."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return "response_format", _json(_ANY_OBJECT)
    if wanted.json_schema is None:
        raise bad_parameter("response_format.json_schema", "is required", "missing_required_parameter")
    schema = wanted.json_schema.schema_
    return "response_format.json_schema.schema", _json(_ANY_OBJECT if schema is None else schema)


def _of_outputs(wanted: StructuredOutputs | None) -> Named | None:
    if wanted is None:
        return None
    found: list[Named] = []
    if wanted.json_ is not None:
        found.append(("structured_outputs.json", _json(_parsed(wanted.json_))))
    if wanted.json_object:
        found.append(("structured_outputs.json_object", _json(_ANY_OBJECT)))
    if wanted.regex is not None:
        found.append(("structured_outputs.regex", LLMatcher.grammar_from_regex(wanted.regex)))
    if wanted.choice is not None:
        found.append(("structured_outputs.choice", "start: " + " | ".join(map(json.dumps, wanted.choice))))
    if wanted.grammar is not None:
        found.append(("structured_outputs.grammar", LLMatcher.grammar_from_lark(wanted.grammar)))
    if len(found) > 1:
        raise bad_parameter("structured_outputs", "must be one of json, json_object, regex, choice and grammar")
    return found[0] if found else None


def _parsed(schema: JsonSchema | str) -> JsonSchema:
    if not isinstance(schema, str):
        return schema
    try:
        parsed = json.loads(schema)
    except json.JSONDecodeError as error:
        raise bad_parameter("structured_outputs.json", f"is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise bad_parameter("structured_outputs.json", "must be a JSON schema: an object")
    return parsed


def _json(schema: JsonSchema) -> str:
    return LLMatcher.grammar_from_json_schema(json.dumps({_OPTIONS: _BLANKS} | schema))
