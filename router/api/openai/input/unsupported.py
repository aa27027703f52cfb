"""Fields of bodies that would change an answer and are not supported: who sends one is told so, by its name."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

import msgspec

from router.api.errors import ApiError, bad_parameter
from router.api.openai.input.bodies import ABSENT, UnsupportedFields

NAMES: Final = tuple(field.name for field in msgspec.structs.fields(UnsupportedFields))

_values: Final = attrgetter(*NAMES)
_NONE: Final = (ABSENT,) * len(NAMES)

# Values that ask for what happens anyway.
_USUAL: Final[Mapping[str, object]] = {
    "function_call": "none",
    "functions": [],
    "include_stop_str_in_output": False,
    "length_penalty": 1.0,
    "modalities": ["text"],
    "return_token_ids": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "use_beam_search": False,
    "verbosity": "medium",
}
_INSTEAD: Final[Mapping[str, str]] = {
    "function_call": "tool_choice",
    "functions": "tools",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.grammar",
    "guided_json": "structured_outputs.json",
    "guided_regex": "structured_outputs.regex",
}
_LONGEST: Final = 64  # bytes of a usual value


def check_supported(body: UnsupportedFields) -> None:
    """Raise `ApiError` if a body has a field that is not supported, and asks for more than what happens anyway."""
    values = _values(body)
    if values == _NONE:  # nearly always
        return
    for name, value in zip(NAMES, values, strict=True):
        if value is not ABSENT and not _is_usual(name, bytes(value)):
            raise unsupported(name)


def unsupported(param: str, reason: str = "") -> ApiError:
    """Return the error for a field that is not supported. ``reason``: why, if it is not the field alone."""
    hint = reason or (f"use {_INSTEAD[param]}" if param in _INSTEAD else "")
    return bad_parameter(param, "; ".join(filter(None, ("is not supported", hint))), "unsupported_parameter")


def _is_usual(name: str, value: bytes) -> bool:
    if value == b"null":
        return True
    if len(value) > _LONGEST or name not in _USUAL:
        return False
    decoded: object = msgspec.json.decode(value)
    return (type(decoded) is not bool and decoded == _USUAL[name]) or decoded is _USUAL[name]
