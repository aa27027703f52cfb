"""Turns the bytes of a request's body into a checked `Body`, or an error that names the parameter.

Small bodies are decoded at once. Of large ones, the parts that could hold any number of elements are first found and
counted (`router.api.openai.input.bounds`), then decoded one by one, so that no body costs more than a few
milliseconds. The decoder stops at the first fault.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from router.api.errors import ApiError, bad_parameter
from router.api.openai.input.bodies import SHAPES, Body, Message, MessageWithMore
from router.api.openai.input.bounds import CHECKS, MAX_MORE_OF_MESSAGE, OWN_CHECKS, Check

LARGE_BODY: Final = 16_384  # bytes; smaller ones are decoded within a millisecond, whatever they hold

B = TypeVar("B", bound=Body)

_TYPES: Final[Mapping[str, str]] = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip
_LIMITS: Final[Mapping[str, str]] = {"<=": "at most", ">=": "at least", "<": "below", ">": "above"}
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`")
_MORE_OF_MESSAGE: Final = re.compile(r"Object contains unknown field `.+` - at `\$(\.messages)?\[(\d+|\.\.\.)\]`")
_OF_WRONG_TYPE: Final = re.compile(r"Expected `(.+)`, got `(.+)`")
_OUT_OF_BOUNDS: Final = re.compile(r"Expected `\w+` (<=|>=|<|>) (.+)")
_OF_WRONG_LENGTH: Final = re.compile(r"Expected `(\w+)` of length (<=|>=) (\d+)")
_PLACE: Final = re.compile(r"(?:`key` in )?`\$\.?(.*)`")
_MAX_SHOWN: Final = 200  # characters of what was sent
_RAW_MESSAGES: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_MESSAGE: Final = msgspec.json.Decoder(Message)
_KNOWN: Final = frozenset(Message.__struct_fields__)


def parse_body(data: bytes, kind: type[B]) -> B:
    """Raise `ApiError` (400) if it is not JSON, holds too much, or is not as ``kind`` wants it."""
    reader: _Reader[B] = _reader(kind)
    try:
        if len(data) > LARGE_BODY:
            return _in_parts(data, reader)
        return _whole(data, reader)
    except msgspec.ValidationError as error:
        raise _explain(str(error), "") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(str(error)) from None
    except RecursionError:
        raise _invalid("it is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class _Reader(Generic[B]):
    """``envelope`` leaves the parts, which are decoded by their own types, as they came."""

    kind: type[B]
    whole: msgspec.json.Decoder[B]
    envelope: msgspec.json.Decoder[Any]
    parts: Mapping[str, tuple[Check, msgspec.json.Decoder[Any]]]


@cache
def _reader(kind: type[B]) -> _Reader[B]:
    fields = msgspec.structs.fields(kind)
    checks = {**CHECKS, **OWN_CHECKS.get(kind.__name__, {})}
    parts = {
        field.encode_name: (checks[field.encode_name], msgspec.json.Decoder(field.type))
        for field in fields
        if field.encode_name in checks
    }
    envelope = [
        (field.name, msgspec.Raw if field.encode_name in parts else field.type, _default(field)) for field in fields
    ]
    of_envelope = msgspec.defstruct(kind.__name__, envelope, kw_only=True)
    return _Reader(kind, msgspec.json.Decoder(kind), msgspec.json.Decoder(of_envelope), parts)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return msgspec.field() if field.required else msgspec.field(default=field.default)


def _whole(data: bytes, reader: _Reader[B]) -> B:
    try:
        return reader.whole.decode(data)
    except msgspec.ValidationError as error:
        if _MORE_OF_MESSAGE.fullmatch(str(error)):
            return _in_parts(data, reader)
        raise


def _in_parts(data: bytes, reader: _Reader[B]) -> B:
    envelope = reader.envelope.decode(data)
    values = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
    for name, (check, decoder) in reader.parts.items():
        if isinstance(part := values[name], msgspec.Raw):
            check(name, bytes(part))
            values[name] = _part(name, bytes(part), decoder)
    return reader.kind(**values)


def _part(param: str, data: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        if param == "messages" and _MORE_OF_MESSAGE.fullmatch(str(error)):
            return messages_with_more(data)
        raise _explain(str(error), param) from None


def messages_with_more(data: bytes) -> list[Message]:
    """Decode messages of which some have fields that are not known here. Raise `ApiError` if one takes too much."""
    messages: list[Message] = []
    for index, fields in enumerate(_RAW_MESSAGES.decode(data)):
        more = {name: _more(f"messages[{index}].{name[:64]}", fields.pop(name)) for name in set(fields) - _KNOWN}
        more = {name: value for name, value in more.items() if value is not None}
        known = b",".join(b"%b:%b" % (msgspec.json.encode(name), bytes(value)) for name, value in fields.items())
        try:
            message = _MESSAGE.decode(b"{%b}" % known)
        except msgspec.ValidationError as error:
            raise _explain(str(error), f"messages[{index}]") from None
        messages.append(_with_more(message, more) if more else message)
    return messages


def _with_more(message: Message, more: dict[str, Any]) -> MessageWithMore:
    return MessageWithMore(**{name: getattr(message, name) for name in message.__struct_fields__}, more=more)


def _more(param: str, value: msgspec.Raw) -> Any:
    data = bytes(value)
    if len(data) > MAX_MORE_OF_MESSAGE:
        raise bad_parameter(param, f"can take at most {MAX_MORE_OF_MESSAGE} bytes of JSON, not {len(data)}")
    return msgspec.json.decode(data)


def _invalid(reason: str) -> ApiError:
    return ApiError(400, f"The body is not valid JSON: {reason[:_MAX_SHOWN]}", code="invalid_json")


def _explain(message: str, part: str) -> ApiError:
    """What the decoder says, in the words of a person. ``part``: the field that was decoded, if not the whole body."""
    says, _, place = message.rpartition(" - at ")
    param = _param(part, place) if says else part
    says = says or message
    if found := _MISSING.fullmatch(says):
        return bad_parameter(f"{param}.{found[1]}".lstrip("."), "is required", "missing_required_parameter")
    if found := _UNKNOWN.fullmatch(says):  # of the few bodies that take no others
        return bad_parameter(
            f"{param}.{found[1][:_MAX_SHOWN]}".lstrip("."), "is no parameter of this path", "unknown_parameter"
        )
    if not param:
        return ApiError(400, "The body must be a JSON object", code="invalid_json")
    return bad_parameter(param, _fault(says, re.split(r"[.\[]", param)[-1]))


def _param(part: str, place: str) -> str:
    """``messages[0].content``; of what may have several shapes, the field and not the element."""
    found = _PLACE.fullmatch(place)
    path = found[1].replace("[...]", "") if found else ""
    param = f"{part}{'.' * (not path.startswith('['))}{path}" if part and path else part or path
    field = re.sub(r"(\[\d+\])+$", "", param)
    return field if field.rpartition(".")[2] in SHAPES else param


def _fault(says: str, field: str) -> str:
    if found := _OF_WRONG_LENGTH.fullmatch(says):
        kind, limit, length = found.groups()
        what = "characters" if kind == "str" else "entries"
        return "must not be empty" if (limit, length) == (">=", "1") else f"must have {_LIMITS[limit]} {length} {what}"
    if found := _OUT_OF_BOUNDS.fullmatch(says):
        return f"must be {_LIMITS[found[1]]} {found[2].removesuffix('.0')}"
    if field in SHAPES:
        return f"must be {SHAPES[field]}"
    if found := _OF_WRONG_TYPE.fullmatch(says):
        wanted = [_TYPES.get(name, name) for name in found[1].split(" | ") if name != "null"]
        return f"must be {' or '.join(wanted)}, not {_TYPES.get(found[2], found[2])}"
    return says[:_MAX_SHOWN]
