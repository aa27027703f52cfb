"""Teaches tools to models whose chat template shows none: in words, in the system message.

Calls and results in the history are written the same way, as text, so nothing of it is lost. Some templates show calls
and results, though no tools: there, they stay what they are.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engines.models.text.call_arguments import arguments_object
from router.chat.calls.call_format import CallFormat
from router.chat.calls.harmony import Harmony

Messages = Sequence[Mapping[str, Any]]

_LESSON: Final = """You have access to these functions, each described by JSON:
<tools>
{tools}
</tools>

To call a function, answer exactly like this, with its name and its arguments:
{example}"""
_EXAMPLE: Final = ("NAME", {"ARGUMENT": "VALUE"})


def taught(
    messages: Messages, tools: Sequence[Mapping[str, Any]] | None, calls: CallFormat | Harmony, *, keeps_calls: bool
) -> list[dict[str, Any]]:
    """Return messages for a template that knows no tools. Calls and results become text unless it keeps calls."""
    plain = [dict(message) if keeps_calls else _plain(message, calls) for message in messages]
    if not tools:
        return plain
    shown = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    lesson = _LESSON.format(tools=shown, example=calls.write([_EXAMPLE]))
    if plain and plain[0]["role"] == "system":
        said = _text(plain[0].get("content"))
        return [{**plain[0], "content": f"{said}\n\n{lesson}" if said else lesson}, *plain[1:]]
    return [{"role": "system", "content": lesson}, *plain]


def _plain(message: Mapping[str, Any], calls: CallFormat | Harmony) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"}
    made = message.get("tool_calls")
    if not made:
        return dict(message)
    said = [_text(message.get("content"))] if message.get("content") else []
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join((*said, calls.write([_call(call) for call in made])))}


def _call(call: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    function = call["function"]
    arguments = arguments_object(function.get("arguments") or "")
    return function["name"], arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""
