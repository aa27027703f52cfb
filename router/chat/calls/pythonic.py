"""Calls as lines of Python: ``[name(key=value, ...), ...]``, as Llama 3.2 and 4 write them."""

import ast
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.chat.calls.call_format import Call, CallGrammar, CallSink
from router.chat.calls.json_machine import BLANKS, Machine, MalformedCallError, expect, skip_blanks
from router.chat.calls.typed_values import json_text
from router.chat.tools import Schema, Tool, ToolUse

PYTHON_START: Final = "<|python_start|>"
PYTHON_END: Final = "<|python_end|>"
_MAX_NAME: Final = 256  # characters
_MAX_DEPTH: Final = 64
_OPEN: Final = "([{"
_CLOSE: Final = ")]}"

_STRING: Final = r"""/"([^"\\\n]|\\["\\nrt'])*"/"""
_INTEGER: Final = "/-?(0|[1-9][0-9]{0,17})/"
_NUMBER: Final = r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?/"

_SIMPLE: Final[Mapping[str, str]] = {
    "string": _STRING,
    "integer": _INTEGER,
    "number": _NUMBER,
    "boolean": '("True" | "False")',
    "null": '"None"',
}


@dataclass(frozen=True, slots=True)
class Pythonic:
    """The arguments become JSON one by one, each when it is complete."""

    name: str = "pythonic"
    openings: str = "["
    triggers: Sequence[str] = (PYTHON_START,)
    markers: Sequence[str] = (PYTHON_START, PYTHON_END)
    shares_section: bool = True
    call_id_length: int = 24

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        expect((yield from skip_blanks()), "[")
        character = yield from skip_blanks()
        while character != "]":
            yield from _read_call(character, calls)
            character = yield from skip_blanks()
            if character == ",":
                character = yield from skip_blanks()
        return (yield from _pass_end())

    def write(self, calls: Sequence[Call]) -> str:
        written = [
            f"{name}({', '.join(f'{key}={_written(value)}' for key, value in given.items())})" for name, given in calls
        ]
        return f"[{', '.join(written)}]"

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        call = grammar.rule(" | ".join(_call(tool, grammar) for tool in use.tools))
        more = f' (", " {call})*' if use.is_parallel else ""
        return f'"[" {call}{more} "]"'


def _written(value: Any) -> str:
    """Return a literal with the quotation marks that the grammar has."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_written(key)}: {_written(own)}' for key, own in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value)


def _pass_end() -> Machine[str]:
    """Read the mark that may follow calls, and return what is none of it."""
    text = yield from skip_blanks()
    while text != PYTHON_END:
        if not PYTHON_END.startswith(text):
            return text
        text += yield
    return ""


def _read_call(first: str, calls: CallSink) -> Machine[None]:
    name, _ = yield from _word(first, "(")
    calls.begin(name)
    calls.add("{")
    character = yield from skip_blanks()
    is_first = True
    while character != ")":
        key, _ = yield from _word(character, "=")
        source, character = yield from _value()
        calls.add(f"{'' if is_first else ', '}{json.dumps(key)}: {_json(source)}")
        is_first = False
        if character == ",":
            character = yield from skip_blanks()
    calls.add("}")


def _word(first: str, end: str) -> Machine[tuple[str, str]]:
    """Read a name up to the character that ends it."""
    word, character = "", first
    while character != end:
        word += character
        if len(word) > _MAX_NAME or character in "\"'()[]{},\n":
            raise MalformedCallError("a name was to come")
        character = yield
    if not (word := word.strip(BLANKS)):
        raise MalformedCallError("a name was to come")
    return word, end


def _value() -> Machine[tuple[str, str]]:
    """Read a value up to the comma or the parenthesis after it, which is returned, too."""
    parts: list[str] = []
    depth, quote = 0, ""
    while True:
        character = yield
        if not quote and not depth and character in ",)":
            return "".join(parts), character
        parts.append(character)
        if quote:
            if character == "\\":
                parts.append((yield))
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        else:
            depth += (character in _OPEN) - (character in _CLOSE)
            if not 0 <= depth <= _MAX_DEPTH:
                raise MalformedCallError("a value is nested too deeply")


def _json(source: str) -> str:
    """Return a Python literal as JSON."""
    text = source.strip()
    try:
        return json_text(_literal_value(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    try:  # true, false and null of other languages, and line ends within quotation marks
        return json_text(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        raise MalformedCallError(f"{text[:80]!r} is no value") from None


def _literal_value(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # models escape what needs no escape
        return ast.literal_eval(text)


def _call(tool: Tool, grammar: CallGrammar) -> str:
    return f'{json.dumps(tool.name + "(")} {_arguments(tool.schema, grammar)} ")"'


def _arguments(schema: Schema, grammar: CallGrammar) -> str:
    """Return the terms for a call's arguments, in the schema's order. Those that are not required may be absent."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return "" if schema.get("additionalProperties") is False else f"({_any_arguments(grammar)})?"
    required = schema.get("required") or ()
    arguments = [
        (f"{json.dumps(key + '=')} {_value_rule(value, grammar)}", key in required) for key, value in properties.items()
    ]
    return _listed(arguments, grammar)


def _listed(arguments: Sequence[tuple[str, bool]], grammar: CallGrammar) -> str:
    """Commas stand between arguments only: each has a rule for where something came before it, and one for not."""
    after, first = "", ""
    for terms, is_required in reversed(arguments):
        rest = f" {after}" if after else ""
        here = grammar.rule(f"{terms}{rest}")
        first = here if is_required else grammar.rule(f"{here} | {first}" if first else f"{here} |")
        follows = grammar.rule(f'", " {terms}{rest}')
        after = follows if is_required else grammar.rule(f"{follows} | {after}" if after else f"{follows} |")
    return first


def _any_arguments(grammar: CallGrammar) -> str:
    argument = grammar.rule(f'/[A-Za-z_][A-Za-z0-9_]{{0,63}}/ "=" {_any_value(grammar)}')
    return grammar.rule(f'{argument} (", " {argument})*')


def _value_rule(schema: Any, grammar: CallGrammar) -> str:
    if not isinstance(schema, Mapping):
        return _any_value(grammar)
    if isinstance(options := schema.get("enum"), list) and options:
        return grammar.rule(" | ".join(json.dumps(_literal(option)) for option in options))
    kind = schema.get("type")
    if kind == "array":
        item = _value_rule(schema.get("items"), grammar)
        return grammar.rule(f'"[" ({item} (", " {item})*)? "]"')
    if kind == "object":
        return _object(schema, grammar)
    return _SIMPLE[kind] if isinstance(kind, str) and kind in _SIMPLE else _any_value(grammar)


def _object(schema: Schema, grammar: CallGrammar) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        value = _any_value(grammar)
        return grammar.rule(f'"{{" ({_STRING} ": " {value} (", " {_STRING} ": " {value})*)? "}}"')
    required = schema.get("required") or ()
    entries = [
        (f"{json.dumps(json.dumps(key) + ': ')} {_value_rule(value, grammar)}", key in required)
        for key, value in properties.items()
    ]
    return grammar.rule(f'"{{" {_listed(entries, grammar)} "}}"')


def _any_value(grammar: CallGrammar) -> str:
    """Return a rule for flat values: what is deeper has a schema that says so."""
    simple = grammar.rule(f'{_STRING} | {_NUMBER} | "True" | "False" | "None"')
    return grammar.rule(f'{simple} | "[" ({simple} (", " {simple})*)? "]"')


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
