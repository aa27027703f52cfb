"""The interface of a way to write calls of tools."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from router.chat.calls.json_machine import Machine
from router.chat.tools import Tool, ToolUse

Call: TypeAlias = tuple[str, Mapping[str, Any]]  # the name of a tool, and arguments


class CallSink(Protocol):
    """Takes the calls of an answer as they are read."""

    def begin(self, name: str) -> None:
        """Take the name of the next call."""

    def add(self, text: str) -> None:
        """Take more of the JSON text of that call's arguments."""


class CallGrammar(Protocol):
    """Collects the rules of a grammar in Lark's syntax, as llguidance has it."""

    def literal(self, text: str) -> str:
        """Return the terms for a text. What is one special token of the model in it becomes that token."""

    def schema(self, schema: object) -> str:
        """Return the name of a rule for JSON that keeps to a schema."""

    def rule(self, body: str) -> str:
        """Return the name of a new rule."""

    def until(self, marker: str) -> str:
        """Return the terms for any text and the marker that ends it."""


class CallFormat(Protocol):
    """One way. It has no state: `read` makes a new machine for each section with calls.

    ``triggers`` are texts with which such a section begins anywhere; ``openings``, single characters with which it
    begins if they come first in an answer. ``markers`` are all texts of it that may be special tokens of a model.
    """

    @property
    def name(self) -> str: ...

    @property
    def triggers(self) -> Sequence[str]: ...

    @property
    def openings(self) -> str: ...

    @property
    def markers(self) -> Sequence[str]: ...

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        """Read what follows a trigger, or the opening and what follows it, up to the end of the section. Return the
        characters that do not belong to it any more. The machine raises `MalformedCallError` where there is no call.
        Schemas of ``tools`` tell text from other values where a format does not.
        """

    def write(self, calls: Sequence[Call]) -> str:
        """Return calls as models write them: for models that are taught the format by their prompts."""

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        """Return the terms of a section with calls after its trigger: one call, or more if ``use.is_parallel`` and
        they share a section.
        """

    @property
    def call_id_length(self) -> int:
        """Characters of the ids of calls, as the model's template takes them back."""

    @property
    def shares_section(self) -> bool:
        """Say whether calls that are made at a time are in one section; else each has its own."""
