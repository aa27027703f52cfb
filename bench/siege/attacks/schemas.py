"""JSON schemas that are short to write and long, or impossible, to follow."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.siege.answers import TURNED_AWAY, Answer
from bench.siege.attack import Family, attack, shots
from bench.siege.ground import Ground

DEPTH = 5000
BILLION = 10**9


def _json(schema: object) -> dict[str, Any]:
    return {"structured_outputs": {"json": schema}}


def _doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next: 2^levels paths."""
    definitions: dict[str, Any] = {f"d{level}": _pair(f"#/$defs/d{level + 1}") for level in range(levels)}
    definitions[f"d{levels}"] = {"type": "integer"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def _pair(ref: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"$ref": ref}, "b": {"$ref": ref}}, "required": ["a", "b"]}


def _any_of(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for level in range(levels):
        schema = {
            "anyOf": [{"type": "object", "properties": {f"p{level}": schema}}, {"type": "array", "items": schema}]
        }
    return schema


def _nested(depth: int, opening: str = '{"type":"array","items":', closing: str = "}") -> str:
    return opening * depth + '{"type":"null"}' + closing * depth


def _optional(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"k{n}": {"type": "integer"} for n in range(count)}}


MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}

ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "multiple-of-product": ("", _json(MULTIPLES)),
    "multiple-of-many": ("", _json({"allOf": [{"type": "integer", "multipleOf": n} for n in (997, 991, 983, 977)]})),
    "multiple-of-fraction": ("", _json({"type": "number", "multipleOf": 1e-7, "minimum": 0, "maximum": 1e9})),
    "multiple-of-zero": ("", _json({"type": "integer", "multipleOf": 0})),
    "number-range-huge": ("", _json({"type": "number", "minimum": -1.7e308, "exclusiveMaximum": 1.7e308})),
    "defs-doubling": ("", _json(_doubling(40))),
    "any-of-exponential": ("", _json(_any_of(12))),
    "one-of-many": ("", _json({"oneOf": [{"const": f"w{n}"} for n in range(2000)]})),
    "optional-properties": ("dottxt-ai/outlines#680", _json(_optional(1500))),
    "enum-huge": ("", _json({"enum": [f"{n:06d}" for n in range(3300)]})),
    "min-length-huge": ("", _json({"type": "string", "minLength": BILLION})),
    "max-length-huge": ("", _json({"type": "string", "maxLength": BILLION})),
    "max-items-huge": ("", _json({"type": "array", "items": {"type": "integer"}, "maxItems": BILLION})),
    "min-items-huge": ("", _json({"type": "array", "items": {"type": "integer"}, "minItems": BILLION})),
    "min-items-nested": (
        "",
        _json({"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999, "items": {}}}),
    ),
    "min-properties-huge": ("", _json({"type": "object", "minProperties": BILLION})),
    "min-items-negative": ("", _json({"type": "array", "minItems": -1})),
    "all-of-intersection": ("", _json({"allOf": [{"type": "string", "pattern": f"^.*a.{{{n}}}$"} for n in range(9)]})),
    "pattern-and-length": ("", _json({"type": "string", "pattern": "^(a|aa)+$", "minLength": 4000, "maxLength": 5000})),
    "pattern-properties": (
        "vllm-project/vllm GHSA-vrq3-r879-7m65",
        _json({"type": "object", "patternProperties": {"^(a+)+$": {}, "^.*b{1000}": {}}}),
    ),
    "pattern-unknown-type": (
        "vllm-project/vllm GHSA-vrq3-r879-7m65",
        _json({"type": "something", "pattern": "(", "format": 3}),
    ),
    "type-invalid": ("vllm-project/vllm#17248, sgl-project/sglang#4574", _json({"type": "stringg"})),
    "ref-self": ("", _json({"$ref": "#"})),
    "ref-cycle": ("", _json({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})),
    "ref-remote": ("", _json({"$ref": "http://127.0.0.1:9/schema.json"})),
    "ref-file": ("", _json({"$ref": "file:///etc/passwd"})),
    "ref-recursive": (
        "sgl-project/sglang#7639",
        _json({"type": "object", "properties": {"child": {"$ref": "#"}, "peer": {"anyOf": [{"$ref": "#"}, {}]}}}),
    ),
    "not-everything": ("", _json({"not": {}})),
    "false-schema": ("", _json({"type": "object", "properties": {"a": False}, "required": ["a"]})),
    "property-names-odd": (
        "",
        _json({"type": "object", "properties": {"\x00": {}, "\ud800": {}, "": {}, "a" * 9000: {}}}),
    ),
    "tuple-draft-7": (
        "vllm-project/vllm#30346",
        _json({"type": "array", "items": [{"type": "integer"}, {"type": "null"}]}),
    ),
    "const-instance": (
        "huggingface/text-generation-inference#2280",
        _json({"const": {"abc": "def", "n": [1, None, 2.5]}}),
    ),
    "schema-text-deep": ("ggml-org/llama.cpp#25283", _json(_nested(1500))),
    "schema-text-not-json": ("vllm-project/vllm#17248", _json("{" * 30_000)),
    "schema-text-number": ("", _json("1" * 32_000)),
    "whitespace-flexible": (
        "vllm-project/vllm#13260",
        _json({"x-guidance": {"whitespace_pattern": "\\s*" * 300}, "type": "object"}),
    ),
}
shots(Family.SCHEMA, ROWS, fast=("multiple-of-product", "ref-self", "min-length-huge", "enum-huge"))


@attack("schema-body-deep", Family.SCHEMA, "ggml-org/llama.cpp#25283", right=TURNED_AWAY, fast=True)
async def schema_body_deep(ground: Ground) -> Sequence[Answer]:
    """Nested in the body itself: who walks it by recursion runs out of stack."""
    body = json.dumps(ground.completion(_json(0)))[:-3] + _nested(DEPTH) + "}}"
    shape = body.replace('"json": 0', '"json": ' + _nested(DEPTH))
    return [await ground.post("/v1/completions", shape.encode())]


@attack("response-format-odd", Family.SCHEMA, "vllm-project/vllm#17248")
async def response_format_odd(ground: Ground) -> Sequence[Answer]:
    odd: Sequence[object] = (
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        {"type": "json_schema", "json_schema": {"schema": MULTIPLES}},
        {"type": "json_schema", "json_schema": {"schema": []}},
        {"type": "regex", "pattern": "a"},
        {"type": 1},
        [],
    )
    return await ground.all_of([{"response_format": one} for one in odd])


@attack("schema-once-per-choice", Family.SCHEMA)
async def schema_once_per_choice(ground: Ground) -> Sequence[Answer]:
    """What is built for each choice is built 128 times."""
    return [await ground.complete({"n": 128, "max_tokens": 2, **_json(MULTIPLES)})]


@attack("schemas-that-hang-in-turn", Family.SCHEMA)
async def schemas_that_hang(ground: Ground) -> Sequence[Answer]:
    """No two have the same bytes: remembering which were bad does not help."""
    schemas = [
        {"allOf": [{"type": "integer", "multipleOf": 9973 - 2 * n}, {"type": "integer", "multipleOf": 9967}]}
        for n in range(6)
    ]
    return list(await asyncio.gather(*(ground.complete(_json(one)) for one in schemas)))
