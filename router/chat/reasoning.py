"""The marks of families of models around the sections in which they think."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from msgspec import Struct


class ReasoningState(Enum):
    """What a prompt says of the reasoning of its answer."""

    NONE = auto()  # nothing: the model may think
    OPEN = auto()  # the prompt ends within a section of reasoning
    CLOSED = auto()  # it ends with a section that is closed: the model is not to think


class ReasoningFormat(Struct, frozen=True):
    """A section begins and ends with these texts, which may be special tokens of the model."""

    name: str
    begin: str
    end: str

    def state_after(self, prompt: str) -> ReasoningState:
        """Return what a prompt says of the reasoning of its answer."""
        begin, end = prompt.rfind(self.begin), prompt.rfind(self.end)
        if begin > end:
            return ReasoningState.OPEN
        is_closed = end >= 0 and not prompt[end + len(self.end) :].strip()
        return ReasoningState.CLOSED if is_closed else ReasoningState.NONE


FORMATS: Final[Mapping[str, ReasoningFormat]] = {
    found.name: found
    for found in (
        ReasoningFormat("think", "<think>", "</think>"),
        ReasoningFormat("mistral", "[THINK]", "[/THINK]"),
        ReasoningFormat("seed", "<seed:think>", "</seed:think>"),
        ReasoningFormat("harmony", "<|channel|>analysis<|message|>", "<|end|>"),
    )
}


def reasoning_of(template: str) -> ReasoningFormat | None:
    """Return the format that a chat template speaks of; None: its model does not think in sections."""
    return next((found for found in FORMATS.values() if found.end in template and _begins(found, template)), None)


def _begins(found: ReasoningFormat, template: str) -> bool:
    """Others end their messages with a mark that is the end of reasoning in channels."""
    return found.name != "harmony" or found.begin in template
