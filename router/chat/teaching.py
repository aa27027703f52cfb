"""Teaches tools to models whose chat template shows none: in words, in the system message.

Calls and results in the history are written the same way, as text, so nothing of it is lost.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engines.models.text.call_arguments import arguments_object

Messages = Sequence[Mapping[str, Any]]

_LESSON: Final = """You have access to these functions, each described by JSON:
<tools>
{tools}
</tools>

To call a function, answer with its name and its arguments as JSON between tags:
<tool_call>
{{"name": "NAME", "arguments": {{...}}}}
</tool_call>"""


def taught(messages: Messages, tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return messages for a template that knows no tools. Calls and results become text."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    lesson = _LESSON.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if plain and plain[0]["role"] == "system":
        said = _text(plain[0].get("content"))
        return [{**plain[0], "content": f"{said}\n\n{lesson}" if said else lesson}, *plain[1:]]
    return [{"role": "system", "content": lesson}, *plain]


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    said = [_text(message.get("content"))] if message.get("content") else []
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join((*said, *map(_call, calls)))}


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    shown = {"name": function.get("name"), "arguments": arguments_object(function.get("arguments"))}
    return f"<tool_call>\n{json.dumps(shown, ensure_ascii=False)}\n</tool_call>"


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""
