"""The page of the messages between processes, made from `mesh.wire`."""

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from docs.tools.tables import table
from mesh.wire import messages

_INTRODUCTION = """# Messages

This page is made from `mesh/wire`. Every message between processes is one of these structs, encoded as MessagePack:
a map whose key `type` holds the name. Any MessagePack library reads them, and `mesh tap` prints them as they flow. A
field with a default may be missing. [A request's life](../concepts/request-life.md) shows in which order they come.
"""
_SOCKETS = {
    "What an engine receives": messages.EngineMessage,
    "What a gateway receives": messages.GatewayMessage,
    "What a supervisor receives": messages.SupervisorMessage,
    "What everybody may hear": messages.BroadcastMessage,
    "What answers a command": messages.VisitorAnswer,
}


def page() -> str:
    parts = [_INTRODUCTION]
    used: dict[type, None] = {}
    for title, union in _SOCKETS.items():
        structs = sorted(typing.get_args(union), key=lambda struct: struct.__name__)
        parts.append(f"## {title}\n")
        for struct in structs:
            parts.append(section(struct))
            used.update(dict.fromkeys(parts_of(struct)))
    parts.append("## What messages are made of\n")
    parts += (section(struct) for struct in sorted(used, key=lambda struct: struct.__name__))
    return "\n".join(parts)


def parts_of(struct: type) -> Iterator[type]:
    """The structs that fields of a message hold, theirs included."""
    for hint in typing.get_type_hints(struct).values():
        for part in _types_in(hint):
            yield part
            yield from parts_of(part)


def _types_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for argument in typing.get_args(hint):
        yield from _types_in(argument)


def section(struct: type) -> str:
    comments = _comments(struct)
    rows: list[tuple[str, ...]] = [
        (f"`{field.name}`", f"`{_type_name(field.type)}`", _default(field), comments.get(field.name, ""))
        for field in msgspec.structs.fields(struct)
    ]
    heading: tuple[str, ...] = ("field", "type", "default", "meaning")
    if not comments:
        heading, rows = heading[:-1], [row[:-1] for row in rows]
    text = inspect.cleandoc(vars(struct).get("__doc__") or "")  # its own: the base class has pages of text
    body = table(heading, rows) if rows else ""
    return f"### {struct.__name__}\n\n{text}\n\n{body}"


def _comments(struct: type) -> dict[str, str]:
    """What stands behind each field in the source."""
    return dict(re.findall(r"^    (\w+): [^#\n]*#\s*(.*)$", inspect.getsource(struct), flags=re.MULTILINE))


def _type_name(hint: Any) -> str:
    arguments = typing.get_args(hint)
    if hasattr(hint, "__metadata__"):
        return _type_name(arguments[0])
    if not arguments:
        return hint.__name__ if isinstance(hint, type) else str(hint)
    names = ", ".join(_type_name(argument) for argument in arguments if argument is not Ellipsis)
    origin = typing.get_origin(hint)
    if getattr(origin, "__name__", "") in ("UnionType", "Union"):
        return names.replace(", ", " or ").replace("NoneType", "None")
    return f"{getattr(origin, '__name__', origin)}[{names}]"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"`{field.default!r}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty" if field.default_factory in (list, dict, tuple, set) else "made"
    return "required"
