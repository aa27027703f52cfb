"""The grammar of an answer that may think, call tools, or keep to a form, in llguidance's words."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from router.chat.calls.call_format import CallFormat
from router.chat.reasoning import ReasoningFormat, ReasoningState
from router.chat.tools import Choosing, ToolUse

SpecialToken = Callable[[str], int | None]  # the id of a text that is one special token of the model

_OPTIONS: Final = {"x-guidance": {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{0,16}"}}
_TEXT: Final = r"/(.|\n)*/"
_BLANKS: Final = r"/[ \t\r\n]{0,4}/"


class GrammarBuilder:
    """Collects rules of one grammar in Lark's syntax."""

    def __init__(self, special_token: SpecialToken, markers: Sequence[str]) -> None:
        """Begin a grammar. ``markers``: texts that are written as special tokens where the model has such."""
        self._tokens = {marker: id_ for marker in markers if (id_ := special_token(marker)) is not None}
        self._rules: list[str] = []
        self._schemas: dict[str, str] = {}

    def literal(self, text: str) -> str:
        """Return the terms for a text, special tokens in it as such."""
        terms: list[str] = []
        while text:
            at, marker = min(
                ((at, marker) for marker in self._tokens if (at := text.find(marker)) >= 0), default=(len(text), "")
            )
            if at:
                terms.append(json.dumps(text[:at]))
            if marker:
                terms.append(f"<[{self._tokens[marker]}]>")
            text = text[at + len(marker) :]
        return " ".join(terms)

    def is_special(self, marker: str) -> bool:
        return marker in self._tokens

    def schema(self, schema: object) -> str:
        """Return the name of a rule for JSON that keeps to a schema."""
        if isinstance(schema, Mapping):
            schema = {**_OPTIONS, **schema}
        text = json.dumps(schema, allow_nan=False)
        if text not in self._schemas:
            self._schemas[text] = self.rule(f"%json {text}")
        return self._schemas[text]

    def rule(self, body: str, options: str = "") -> str:
        """Return the name of a new rule. ``options``: of llguidance, in brackets."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def until(self, marker: str, most_tokens: int | None = None) -> str:
        """Return terms for any text and the marker after it. ``most_tokens``: of the text, where the marker has a
        special token, which text never holds.
        """
        at = min((at for token in self._tokens if (at := marker.find(token)) >= 0), default=-1)
        if at >= 0:
            bound = "" if most_tokens is None else f"[max_tokens={most_tokens}]"
            text = f"/(.|\\n)*{_in_pattern(marker[:at])}/"
            return f"{self.rule(text, bound)} {self.literal(marker[at:])}"
        return self.rule(f"{_TEXT} {json.dumps(marker)}", "[lazy]")

    def text(self, start: str) -> str:
        return "\n".join(("%llguidance {}", f"start: {start}", *self._rules, ""))


def answer_grammar(
    special_token: SpecialToken,
    *,
    reasoning: ReasoningFormat | None = None,
    state: ReasoningState = ReasoningState.NONE,
    most_reasoning_tokens: int | None = None,
    calls: CallFormat | None = None,
    use: ToolUse | None = None,
    form: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of a grammar. ``form``: a grammar of llguidance that the answer keeps to after its reasoning.

    Of ``use`` (with ``calls``) and ``form``, the answer keeps to what is given; an answer that may call tools and has
    a form is either calls or in that form.
    """
    markers = (
        *(() if calls is None else calls.markers),
        *(() if reasoning is None else (reasoning.begin, reasoning.end)),
    )
    builder = GrammarBuilder(special_token, markers)
    head = "" if reasoning is None else _thinking(builder, reasoning, state, most_reasoning_tokens)
    if use is not None and calls is not None and use.choosing is not Choosing.NONE:
        body = _with_calls(builder, calls, use, "@form" if form else "")
    else:
        body = "@form" if form else builder.rule(_TEXT)
    grammars: list[dict[str, Any]] = [{"lark_grammar": builder.text(f"{head} {body}".strip())}]
    if form is not None:
        grammars.append({"name": "form", **form})
    return json.dumps({"grammars": grammars})


def _thinking(
    builder: GrammarBuilder, reasoning: ReasoningFormat, state: ReasoningState, most_tokens: int | None
) -> str:
    """Return the terms for what comes before an answer proper."""
    if state is ReasoningState.OPEN:
        section = builder.literal(reasoning.end) if most_tokens == 0 else builder.until(reasoning.end, most_tokens)
        return f"{section} {_BLANKS}"
    if state is ReasoningState.CLOSED or most_tokens == 0:
        return _BLANKS
    return f"({_BLANKS} {builder.literal(reasoning.begin)} {builder.until(reasoning.end, most_tokens)})? {_BLANKS}"


def _with_calls(builder: GrammarBuilder, calls: CallFormat, use: ToolUse, form: str) -> str:
    rest = builder.rule(calls.section(use, builder))
    trigger = calls.triggers[0]
    if calls.openings:
        tag = f"{builder.literal(trigger)}? " if builder.is_special(trigger) else ""
        section = builder.rule(tag + rest)
    else:
        section = builder.rule(f"{builder.literal(trigger)} {rest}")
    is_repeated = use.is_parallel and not calls.shares_section
    if use.choosing is Choosing.REQUIRED:
        return f"{section} ({_BLANKS} {section})*" if is_repeated else section
    if form:
        return builder.rule(f"{section} | {form}")
    if calls.openings:
        return builder.rule(f"{section} | {_other_opening(calls.openings)} | ")
    marked = builder.rule(f"{builder.until(trigger)} {rest}")
    return f"({marked})* {builder.rule(_TEXT)}" if is_repeated else builder.rule(f"{marked} | {_TEXT}")


def _other_opening(openings: str) -> str:
    """Return a term for text that does not begin as calls do."""
    escaped = "".join(f"\\{character}" for character in openings)
    return rf"/[ \t\r\n]*[^ \t\r\n{escaped}](.|\n)*/"


def _in_pattern(text: str) -> str:
    return re.escape(text).replace("/", "\\/").replace("\n", "n")


def free_text(builder: GrammarBuilder) -> str:
    """Return the name of a rule for any text."""
    return builder.rule(_TEXT)
