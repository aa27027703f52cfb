"""Finds out how one model's chats are written: its template, and its marks of reasoning and of calls."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from engines.models.text.chat_template import ChatTemplate
from engines.models.text.template_facts import TemplateFacts
from mesh.chat_formats import AUTO_FORMAT, NO_FORMAT
from router.chat.calls import formats
from router.chat.calls.call_format import CallFormat
from router.chat.calls.harmony import Harmony
from router.chat.reasoning import FORMATS, ReasoningFormat, reasoning_of

_ANGLED: Final = re.compile(r"<.*[^ ]>", re.DOTALL)


class ChatStyle(Struct, frozen=True):
    """``calls``: how the model writes calls; models whose template shows no tools are taught one way by their prompts
    (`router.chat.teaching`). ``special_tokens``: ids of the markers that are special tokens, as grammars see them.
    """

    calls: CallFormat | Harmony
    reasoning: ReasoningFormat | None
    facts: TemplateFacts | None
    facts_with_tools: TemplateFacts | None
    special_tokens: Mapping[str, int]
    is_guessed: bool = False  # the template shows tools, but calls in no way that is known

    @property
    def is_taught(self) -> bool:
        """Say whether prompts have to tell how tools are called."""
        return self.facts_with_tools is not None and not self.facts_with_tools.takes_tools

    @property
    def keeps_calls(self) -> bool:
        """Say whether the template shows calls that were made."""
        return self.facts_with_tools is not None and self.facts_with_tools.takes_calls

    def facts_of(self, *, has_tools: bool) -> TemplateFacts | None:
        return self.facts_with_tools if has_tools else self.facts

    def special_token(self, text: str) -> int | None:
        """The id of a text that is one special token of the model."""
        return self.special_tokens.get(text)


def style_of(
    template: ChatTemplate,
    added_id: Callable[[str], int | None],
    special_ids: frozenset[int],
    tool_format: str = AUTO_FORMAT,
    reasoning_format: str = AUTO_FORMAT,
) -> ChatStyle:
    """Find out how a model's chats are written. The formats are those of the topology; `AUTO_FORMAT`: the template
    tells. ``added_id`` gives the token that was added to the vocabulary for a text.
    """
    source = "\n".join(template.sources.values())
    calls = formats.calls_of(source) if tool_format == AUTO_FORMAT else formats.ALL[tool_format]
    reasoning = _reasoning(source, reasoning_format)
    style = ChatStyle(
        calls=calls or formats.HERMES,
        reasoning=reasoning,
        facts=template.facts(has_tools=False),
        facts_with_tools=template.facts(has_tools=True),
        special_tokens={},
    )
    markers = (*style.calls.markers, *(() if reasoning is None else (reasoning.begin, reasoning.end)))
    ids = {marker: id_ for marker in markers if (id_ := added_id(marker)) is not None}
    special = {marker: id_ for marker, id_ in ids.items() if id_ in special_ids or _ANGLED.fullmatch(marker)}
    guessed = calls is None and not style.is_taught
    return ChatStyle(style.calls, reasoning, style.facts, style.facts_with_tools, special, guessed)


def remark_on_calls(source: str) -> str | None:
    """Return a line about a template that shows tools and calls in no way that is known; None: all is well."""
    if "tools" not in source or formats.calls_of(source) is not None:
        return None
    return (
        f"the model's chat template shows calls of tools in no way that is known, so {formats.HERMES.name} is taken; "
        "name another with tool_format if answers show calls as text"
    )


def _reasoning(source: str, name: str) -> ReasoningFormat | None:
    if name == NO_FORMAT:
        return None
    return reasoning_of(source) if name == AUTO_FORMAT else FORMATS[name]
