"""Chats and prompts from a file of JSON lines.

A line is ``{"messages": [...]}``, ``{"prompt": "..."}`` (as vLLM's custom data sets), or ``{"conversations": [...]}``
(ShareGPT: the first turn is asked); ``"max_tokens"`` or ``"output_tokens"`` may say how long its answer is to be.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.load.generator.wire import Chat
from simulation.loads.rows import Row, TraceError, json_rows, open_text

LENGTHS = ("max_tokens", "output_tokens")


def load_chats(path: Path) -> tuple[list[Chat], list[int | None]]:
    """The chats, and how many tokens each one's answer is to have. Raise `TraceError`."""
    try:
        with open_text(path) as file:
            found = [(_chat(row), _length(row)) for row in json_rows(path, file)]
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if not found:
        raise TraceError(f'{path}:1: empty; write one chat a line, as {{"messages": [...]}}')
    return [chat for chat, _ in found], [length for _, length in found]


def _chat(row: Row) -> Chat:
    if row.has("messages"):
        messages = row.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise row.fault("messages", 'want a list such as [{"role": "user", "content": "..."}]')
        return Chat(messages=tuple(messages))
    if row.has("conversations"):
        return Chat(prompt=_first_turn(row))
    if row.has("prompt"):
        return Chat(prompt=row.text("prompt"))
    raise row.fault("messages", "missing; a line has messages, prompt or conversations")


def _first_turn(row: Row) -> str:
    turns: Any = row.get("conversations")
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, dict) and isinstance(turn.get("value"), str):
            return str(turn["value"])
    raise row.fault("conversations", 'want a list such as [{"from": "human", "value": "..."}]')


def _length(row: Row) -> int | None:
    return next((row.tokens(name) for name in LENGTHS if row.has(name)), None)


def load_text(path: Path) -> str:
    """Raise `TraceError`."""
    try:
        with open_text(path) as file:
            text = file.read()
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if not text.strip():
        raise TraceError(f"{path}: empty; a text has words")
    return text


def flattened(chats: Sequence[Chat]) -> Iterator[Chat]:
    """For completions, which know no roles: a chat of one message is its words."""
    for chat in chats:
        messages = chat.messages
        if messages is None:
            yield chat
        elif len(messages) == 1 and isinstance(messages[0].get("content"), str):
            yield Chat(prompt=messages[0]["content"])
        else:
            raise TraceError("--chats: completions take no chats of several messages; give --api chat")
