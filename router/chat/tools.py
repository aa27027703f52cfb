"""The tools that a request offers, and which of them its answer may or must call."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

Schema = Mapping[str, Any]


def any_object() -> Schema:
    return {"type": "object"}


class Choosing(StrEnum):
    """Who decides whether a tool is called."""

    NONE = "none"  # nobody: no tool is called
    AUTO = "auto"  # the model
    REQUIRED = "required"  # the client: at least one is


class Tool(Struct, frozen=True):
    """A function that an answer may call. ``schema``: of its arguments, an object. ``is_strict``: calls keep to the
    schema whatever it costs, and a schema that cannot be followed is refused.
    """

    name: str
    schema: Schema = field(default_factory=any_object)
    is_strict: bool = False


class ToolUse(Struct, frozen=True):
    """What an answer may do with tools. ``tools``: those that it may call; ``is_parallel``: more than one at a time."""

    tools: Sequence[Tool]
    choosing: Choosing
    is_parallel: bool = True

    def loosened(self) -> "ToolUse":
        """Return the same where arguments of tools that are not strict may be any object."""
        tools = [tool if tool.is_strict else Tool(tool.name) for tool in self.tools]
        return ToolUse(tools, self.choosing, self.is_parallel)
