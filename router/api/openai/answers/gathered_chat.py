"""Gathers the pieces of a chat's answer into what it said in all: content, reasoning, calls of tools."""

from dataclasses import dataclass

from router.api.openai.answers.choice import Piece
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, ReasoningDelta


@dataclass(slots=True)
class GatheredCall:
    """One call of a tool. ``arguments``: the JSON text that has come."""

    name: str
    parts: list[str]

    @property
    def arguments(self) -> str:
        return "".join(self.parts)


class GatheredChat:
    """What one choice has said so far."""

    def __init__(self) -> None:
        self._contents: list[str] = []
        self._reasonings: list[str] = []
        self.calls: list[GatheredCall] = []

    def add(self, piece: Piece) -> None:
        if piece.deltas is None:
            self._contents.append(piece.text)
            return
        for delta in piece.deltas:
            match delta:
                case ContentDelta(text):
                    self._contents.append(text)
                case ReasoningDelta(text):
                    self._reasonings.append(text)
                case CallBegins(_, name):
                    self.calls.append(GatheredCall(name, []))
                case CallArguments(index, text):
                    self.calls[index].parts.append(text)

    @property
    def content(self) -> str:
        return "".join(self._contents)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasonings)
