"""Values that a model writes bare, as in tags: the schemas of tools say which are text and which are JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from router.chat.calls.json_machine import Emit, Machine
from router.chat.tools import Schema, Tool

_MAX_REFERENCES: Final = 16
_MAX_DEPTH: Final = 8  # of choices between schemas
_OF_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_KINDS: Final = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object", type(None): "null"}
_TEXT: Final = frozenset({"string"})


def schema_of(tools: Sequence[Tool], name: str) -> Schema:
    """Return the schema of a tool's arguments; of an unknown tool, an empty one."""
    return next((tool.schema for tool in tools if tool.name == name), {})


def property_of(schema: Schema, key: str) -> Any:
    """Return the schema of one argument, or an empty one."""
    properties = schema.get("properties")
    return properties.get(key, {}) if isinstance(properties, Mapping) else {}


def is_text(schema: Any, root: Schema) -> bool:
    """Say whether a value can only be text. ``root`` is the schema that references point into."""
    return kinds_of(schema, root) == _TEXT


def kinds_of(schema: Any, root: Schema, depth: int = 0) -> frozenset[str]:
    """Return the types of JSON that a schema speaks of; none: it does not say."""
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return frozenset()
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    if isinstance(kind, list):
        return frozenset(item for item in kind if isinstance(item, str))
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if isinstance(values, list) and values:
        return frozenset(map(_kind, values))
    choices = schema.get("anyOf") or schema.get("oneOf")
    found = [kinds_of(choice, root, depth + 1) for choice in choices] if isinstance(choices, list) else []
    return frozenset[str]().union(*found) if all(found) else frozenset()


def read_text(end: str, blank: str, emit: Emit) -> Machine[None]:
    """Hand on the text before an end. One ``blank`` before and after it belongs to the tags."""
    ends = (end, blank + end) if blank else (end,)
    starts = frozenset(known[0] for known in ends)
    held, is_first = "", True
    while held not in ends:
        character = yield
        if is_first and character == blank:
            is_first = False
            continue
        is_first = False
        if not held and character not in starts:
            emit(character)
            continue
        held += character
        while not any(known.startswith(held) for known in ends):
            emit(held[0])
            held = held[1:]


def read_value(end: str, blank: str, schema: Any, root: Schema, emit: Emit) -> Machine[None]:
    """Read a value before an end, and hand it on as JSON: text while it comes, others when they are whole."""
    if is_text(schema, root):
        emit('"')
        yield from read_text(end, blank, lambda character: emit(_escaped(character)))
        emit('"')
        return
    parts: list[str] = []
    yield from read_text(end, blank, parts.append)
    emit(json_of("".join(parts), kinds_of(schema, root)))


def json_of(text: str, kinds: frozenset[str]) -> str:
    """Return the JSON of a bare value. What is none of the kinds is text."""
    known = _OF_PYTHON.get(text.strip(), text.strip())
    try:
        value = json.loads(known, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json_text(text)
    is_one = _kind(value) in kinds or ("number" in kinds and _kind(value) == "integer")
    return json_text(text) if "string" in kinds and (isinstance(value, str) or not is_one) else known


def json_text(value: Any) -> str:
    """Return JSON that can be written as UTF-8, halves of characters included. Infinity raises `ValueError`."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isascii() or _is_whole(text) else json.dumps(value)


def _escaped(character: str) -> str:
    return json_text(character)[1:-1]


def _is_whole(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _resolved(schema: Any, root: Schema) -> Any:
    """Follow references within one document."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = root
        for step in reference[2:].split("/"):
            schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
    return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _kind(value: Any) -> str:
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _KINDS[type(value)]
