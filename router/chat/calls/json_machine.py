"""Reads JSON character by character, as generators that take one character at a time.

What they find depends on the text alone and not on how it was cut.
"""

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
Machine: TypeAlias = Generator[None, str, T]
Emit: TypeAlias = Callable[[str], None]

BLANKS = " \t\n\r"
_MAX_DEPTH = 256
_MAX_NAME = 4096  # characters of a key, or of the name of a tool
_decode = msgspec.json.Decoder(str).decode


class MalformedCallError(ValueError):
    """What comes is no call."""


def skip_blanks() -> Machine[str]:
    """Return the first character that is no blank."""
    while (character := (yield)) in BLANKS:
        pass
    return character


def expect(character: str, wanted: str) -> None:
    """Raise `MalformedCallError` if the character is another one."""
    if character != wanted:
        raise MalformedCallError(f"{character!r} where {wanted!r} was to come")


def read_string() -> Machine[str]:
    """Return the string whose opening quotation mark was read."""
    parts = ['"']
    while (character := (yield)) != '"':
        parts.append(character)
        if character == "\\":
            parts.append((yield))
        if len(parts) > _MAX_NAME:
            raise MalformedCallError("a name is too long")
    try:
        return _decode("".join(parts) + '"')
    except msgspec.DecodeError as error:
        raise MalformedCallError(str(error)) from None


def pass_object(emit: Emit) -> Machine[None]:
    """Hand on the object whose opening brace was read, brace included, as it is written."""
    emit("{")
    depth, in_string = 1, False
    while depth:
        character = yield
        emit(character)
        if in_string:
            if character == "\\":
                emit((yield))
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            if depth > _MAX_DEPTH:
                raise MalformedCallError("arguments are nested too deeply")
        elif character in "}]":
            depth -= 1


def read_call(name: Callable[[str], None], arguments: Emit) -> Machine[None]:
    """Read ``{"name": ..., "arguments": {...}}`` whose brace was read. ``parameters`` is another word for arguments.

    The two may come in either order: arguments wait for the name. Raise `MalformedCallError` without a name.
    """
    held: list[str] = []
    is_named = has_arguments = False
    character = yield from skip_blanks()
    while character != "}":
        expect(character, '"')
        key = yield from read_string()
        expect((yield from skip_blanks()), ":")
        character = yield from skip_blanks()
        if key == "name" and not is_named:
            expect(character, '"')
            name((yield from read_string()))
            is_named = True
            if held:
                arguments("".join(held))
            character = yield from skip_blanks()
        elif key in ("arguments", "parameters") and character == "{" and not has_arguments:
            yield from pass_object(arguments if is_named else held.append)
            has_arguments = True
            character = yield from skip_blanks()
        else:
            character = yield from _pass_over(character)
        if character == ",":
            character = yield from skip_blanks()
            expect(character, '"')
    if not is_named:
        raise MalformedCallError("a call without a name")
    if not has_arguments:
        arguments("{}")


def _pass_over(character: str) -> Machine[str]:
    """Read a value that nobody wants. Return the first character after it."""
    if character in "{[":
        yield from pass_object(_nowhere)
        return (yield from skip_blanks())
    if character == '"':
        yield from read_string()
        return (yield from skip_blanks())
    while (character := (yield)) not in ",}":
        pass
    return character


def _nowhere(_: str) -> None:
    pass
