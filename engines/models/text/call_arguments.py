"""Arguments of calls in a chat's history: JSON text in APIs, objects in most chat templates."""

import json
from collections.abc import Mapping
from typing import Any


def arguments_object(text: object) -> object:
    """Return the object that a JSON text tells; what is none stays as it is. No text means no arguments."""
    if not isinstance(text, str):
        return text
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def with_objects(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message whose calls have their arguments as objects."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [_with_object(call) for call in calls]} if isinstance(calls, list) else message


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or function.get("arguments") is None:
        return call
    return {**call, "function": {**function, "arguments": arguments_object(function["arguments"])}}
