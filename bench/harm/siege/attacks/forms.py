"""Forms of answers that are short to write and long, or impossible, to follow: grammars, patterns, choices, schemas."""

import json
from functools import partial
from typing import Any

from bench.harm.harm import TURNED_AWAY, Harm
from bench.harm.siege.attack import Run, complete, shoot
from bench.harm.siege.ground import Fields, Ground

DEPTH = 5000
BILLION = 10**9
VLLM_REGEX = "vllm-project/vllm#17313"
VLLM_SCHEMA = "vllm-project/vllm GHSA-vrq3-r879-7m65"
XGRAMMAR = "xgrammar GHSA-9q5r-wfvf-rr7f"
INTEGER = {"type": "integer"}
MULTIPLES = {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}


def form(**fields: Any) -> Run:
    return complete({"structured_outputs": fields})


def lark(text: str) -> Run:
    return form(grammar=text)


def regex(text: str) -> Run:
    return form(regex=text)


def schema(schema: object) -> Run:
    return form(json=schema)


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next: 2^levels paths."""
    refs = [{"$ref": f"#/$defs/d{level}"} for level in range(levels + 1)]
    pairs = [{"type": "object", "properties": {"a": ref, "b": ref}, "required": ["a", "b"]} for ref in refs]
    return {**refs[0], "$defs": {f"d{level}": [*pairs[1:], INTEGER][level] for level in range(levels + 1)}}


def any_of(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = INTEGER
    for level in range(levels):
        members = {"type": "object", "properties": {f"p{level}": schema}}
        schema = {"anyOf": [members, {"type": "array", "items": schema}]}
    return schema


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '{"type":"null"}' + "}" * depth


def rules(count: int) -> str:
    """Each rule is the next one twice."""
    return "\n".join(["start: r0", *(f"r{n}: r{n + 1} r{n + 1}" for n in range(count)), f'r{count}: "a"'])


def deep_body(ground: Ground) -> list[bytes]:
    """Nested in the body itself: who walks it by recursion runs out of stack."""
    body = json.dumps(ground.fields({"structured_outputs": {"json": 0}}))
    return [ground.post("/v1/completions", body.replace('"json": 0', f'"json": {nested(DEPTH)}').encode())]


def many_choices(ground: Ground) -> list[bytes]:
    """Each grammar is good, and no two are the same: a cache without a bound grows."""
    salt = ground.random.randrange(10**9)
    forms = [{"choice": [f"w{salt}x{n}x{k}" for k in range(300)]} for n in range(120)]
    return [ground.completion({"max_tokens": 1, "structured_outputs": form}) for form in forms]


CONTRADICTED: list[Fields] = [
    {"min_tokens": 4},
    {"stop_token_ids": list(range(64))},
    {"logit_bias": {str(n): -100 for n in range(200)}},
    {"temperature": 2.0, "top_k": 1, "min_p": 1.0},
    {"ignore_eos": True},
    {"echo": True, "logprobs": 5},
    {"stop": ["a", "b", "c"], "n": 8},
]
RESPONSE_FORMATS: list[object] = [
    {"type": "json_schema"},
    {"type": "json_schema", "json_schema": {"name": "x"}},
    {"type": "json_schema", "json_schema": {"schema": MULTIPLES}},
    {"type": "json_schema", "json_schema": {"schema": []}},
    {"type": "regex", "pattern": "a"},
    {"type": 1},
    [],
]
# No two have the same bytes: remembering which were bad does not help.
HANGING = [{"allOf": [{"type": "integer", "multipleOf": 9973 - 2 * n}, MULTIPLES["allOf"][1]]} for n in range(6)]

_g = partial(Harm, "grammar")
_s = partial(Harm, "schema")

ATTACKS = (
    _g("lark-left-recursion", lark('start: start "a" | start'), XGRAMMAR, in_short=True),
    _g("lark-empty-recursion", lark("start: a\na: b | \nb: a a"), XGRAMMAR),
    _g("lark-ambiguous", lark('start: s\ns: s s | s s s | "a"')),
    _g("lark-doubling", lark(rules(60))),
    _g("lark-deep-parentheses", lark(f'start: {"(" * 8000}"a"{")" * 8000}'), "xgrammar GHSA-5cmr-4px5-23pc"),
    _g("lark-nested-repetition", lark(f'start: {"(" * 2000}"a"{")*" * 2000}'), "ggml-org/llama.cpp#18988"),
    _g("lark-counted", lark('start: A{1000000,2000000}\nA: "a"')),
    _g("lark-counted-nested", lark('start: (("a"{1,1000}){1,1000}){1,1000}'), in_short=True),
    _g(
        "lark-many-rules",
        lark("\n".join(["start: r0", *(f'r{n}: "x{n}" | r{n + 1}' for n in range(1500)), 'r1500: "y"'])),
    ),
    _g("lark-terminal-counted", lark("start: A\nA: /(a|b)*a(a|b){400}/")),
    _g("lark-intersection", lark("start: A\nA: /.*a.{18}/ & /.*b.{17}/ & ~/.*c.{16}/")),
    _g("lark-import-missing", lark("start: A\n%import common.NOTHING -> A"), "dottxt-ai/outlines#1610"),
    _g("lark-json-inside", lark(f"start: %json {json.dumps(MULTIPLES)}")),
    _g("lark-special-tokens", lark("start: <|endoftext|> <[0]> <[999999999999]> <[^0-5]>")),
    _g("lark-garbage", lark("\x00\x01" * 8000)),
    _g("lark-not-a-grammar", lark("?start: expression\n%%%%"), "vllm-project/vllm#16911"),
    _g("choice-of-prefixes", form(choice=["a" * n for n in range(1, 250)])),
    _g("choice-many", form(choice=[f"{n}" for n in range(1024)])),
    _g("choice-odd", form(choice=["\x00", "\ud800", "\uffff", "a" * 30_000])),
    _g("several-forms", form(choice=["a"], regex="a", json_object=True)),
    _g("grammars-in-turn", shoot(many_choices, at_once=4), "GHSA-389x-67px-mjg3", load=4),
    _g(
        "grammar-stopped-at-once",
        complete(*({"structured_outputs": {"choice": ["abc"]}, **one} for one in CONTRADICTED)),
    ),
    _g("regex-unbalanced", regex("[a-z"), VLLM_REGEX),
    _g("regex-double-star", regex("foo**"), "vllm-project/vllm#19270", in_short=True),
    _g("regex-counted", regex("((a{1,1000}){1,1000}){1,1000}")),
    _g("regex-counted-huge", regex("a{999999999}")),
    _g("regex-window", regex("(a|b)*a(a|b){500}"), in_short=True),
    _g("regex-backtracking", regex("(a+)+(a*)*(a|a)*b"), "vllm-project/vllm GHSA-w6q7-j642-7c25"),
    _g("regex-lookaround", regex("(?=a)(?<!b)(?!c)a")),
    _g("regex-back-reference", regex("(a)\\1{100}")),
    _g("regex-unicode-classes", regex("[\\p{L}\\p{N}\\p{P}]{1,2000}[^\\p{Lu}]{1,2000}")),
    _g("regex-deep", regex("(" * 10_000 + "a" + ")" * 10_000)),
    _g("regex-alternatives", regex("|".join(f"a{n}b{n * 7919 % 5003}" for n in range(2600)))),
    _g("regex-null", regex("\x00{1,99999}")),
    _g("regex-empty-language", regex("[^\\x00-\\U0010ffff]")),
    _g("regex-flags", regex("(?i)(?s)(?x)(?U)" * 100 + "a")),
    _g("regex-surrogate", regex("\ud800+")),
    _g("regex-long", regex("." * 32_768)),
    _g("regex-too-long", regex("." * 2_000_000)),
    _s("multiple-of-product", schema(MULTIPLES), in_short=True),
    _s("multiple-of-many", schema({"allOf": [{"type": "integer", "multipleOf": n} for n in (997, 991, 983, 977)]})),
    _s("multiple-of-fraction", schema({"type": "number", "multipleOf": 1e-7, "minimum": 0, "maximum": 1e9})),
    _s("multiple-of-zero", schema({"type": "integer", "multipleOf": 0})),
    _s("number-range-huge", schema({"type": "number", "minimum": -1.7e308, "exclusiveMaximum": 1.7e308})),
    _s("defs-doubling", schema(doubling(40))),
    _s("any-of-exponential", schema(any_of(12))),
    _s("one-of-many", schema({"oneOf": [{"const": f"w{n}"} for n in range(2000)]})),
    _s(
        "optional-properties",
        schema({"type": "object", "properties": {f"k{n}": INTEGER for n in range(1500)}}),
        "dottxt-ai/outlines#680",
    ),
    _s("enum-huge", schema({"enum": [f"{n:06d}" for n in range(3300)]}), in_short=True),
    _s("min-length-huge", schema({"type": "string", "minLength": BILLION}), in_short=True),
    _s("max-length-huge", schema({"type": "string", "maxLength": BILLION})),
    _s("max-items-huge", schema({"type": "array", "items": INTEGER, "maxItems": BILLION})),
    _s("min-items-huge", schema({"type": "array", "items": INTEGER, "minItems": BILLION})),
    _s(
        "min-items-nested",
        schema({"type": "array", "minItems": 999, "items": {"type": "array", "minItems": 999, "items": {}}}),
    ),
    _s("min-properties-huge", schema({"type": "object", "minProperties": BILLION})),
    _s("min-items-negative", schema({"type": "array", "minItems": -1})),
    _s("all-of-intersection", schema({"allOf": [{"type": "string", "pattern": f"^.*a.{{{n}}}$"} for n in range(9)]})),
    _s("pattern-and-length", schema({"type": "string", "pattern": "^(a|aa)+$", "minLength": 4000, "maxLength": 5000})),
    _s(
        "pattern-properties",
        schema({"type": "object", "patternProperties": {"^(a+)+$": {}, "^.*b{1000}": {}}}),
        VLLM_SCHEMA,
    ),
    _s("pattern-unknown-type", schema({"type": "something", "pattern": "(", "format": 3}), VLLM_SCHEMA),
    _s("type-invalid", schema({"type": "stringg"}), "vllm-project/vllm#17248, sgl-project/sglang#4574"),
    _s("ref-self", schema({"$ref": "#"}), in_short=True),
    _s("ref-cycle", schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})),
    _s("ref-remote", schema({"$ref": "http://127.0.0.1:9/schema.json"})),
    _s("ref-file", schema({"$ref": "file:///etc/passwd"})),
    _s(
        "ref-recursive",
        schema({"type": "object", "properties": {"child": {"$ref": "#"}, "peer": {"anyOf": [{"$ref": "#"}, {}]}}}),
        "sgl-project/sglang#7639",
    ),
    _s("not-everything", schema({"not": {}})),
    _s("false-schema", schema({"type": "object", "properties": {"a": False}, "required": ["a"]})),
    _s(
        "property-names-odd",
        schema({"type": "object", "properties": {"\x00": {}, "\ud800": {}, "": {}, "a" * 9000: {}}}),
    ),
    _s("tuple-draft-7", schema({"type": "array", "items": [INTEGER, {"type": "null"}]}), "vllm-project/vllm#30346"),
    _s(
        "const-instance",
        schema({"const": {"abc": "def", "n": [1, None, 2.5]}}),
        "huggingface/text-generation-inference#2280",
    ),
    _s("schema-text-deep", schema(nested(1500)), "ggml-org/llama.cpp#25283"),
    _s("schema-text-not-json", schema("{" * 30_000), "vllm-project/vllm#17248"),
    _s("schema-text-number", schema("1" * 32_000)),
    _s(
        "whitespace-flexible",
        schema({"x-guidance": {"whitespace_pattern": "\\s*" * 300}, "type": "object"}),
        "vllm-project/vllm#13260",
    ),
    _s("schema-body-deep", shoot(deep_body), "ggml-org/llama.cpp#25283", right=TURNED_AWAY, in_short=True),
    _s(
        "response-format-odd",
        complete(*({"response_format": one} for one in RESPONSE_FORMATS)),
        "vllm-project/vllm#17248",
    ),
    _s("schema-once-per-choice", complete({"n": 128, "max_tokens": 2, "structured_outputs": {"json": MULTIPLES}})),
    _s("schemas-that-hang-in-turn", complete(*({"structured_outputs": {"json": one}} for one in HANGING), at_once=6)),
)
