"""The grammar of an answer in channels (`router.chat.calls.harmony`), in llguidance's words."""

import json
from collections.abc import Mapping
from typing import Any

from router.chat.answer_grammar import GrammarBuilder, SpecialToken, free_text
from router.chat.calls.harmony import CHANNEL, CONSTRAIN, END, FUNCTIONS, MESSAGE, NEXT, Harmony
from router.chat.tools import Choosing, Tool, ToolUse


def channel_grammar(
    special_token: SpecialToken,
    channels: Harmony,
    *,
    most_reasoning_tokens: int | None = None,
    use: ToolUse | None = None,
    form: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of a grammar: reasoning, and then a call or what is for the user, which keeps to ``form``.

    One call is made at a time: its end ends the answer.
    """
    builder = GrammarBuilder(special_token, channels.markers)
    is_required = use is not None and use.choosing is Choosing.REQUIRED
    tails = [] if is_required else _final(builder, "@form" if form else "")
    if use is not None and use.choosing is not Choosing.NONE:
        tails.insert(0, builder.rule(" | ".join(_call(tool, builder) for tool in use.tools)))
    tail = builder.rule(" | ".join(tails))
    start = f"{_before(builder, most_reasoning_tokens, may_say=use is not None)} {tail}".strip()
    grammars: list[dict[str, Any]] = [{"lark_grammar": builder.text(start)}]
    if form is not None:
        grammars.append({"name": "form", **form})
    return json.dumps({"grammars": grammars})


def _before(builder: GrammarBuilder, most_tokens: int | None, *, may_say: bool) -> str:
    """Messages that are not the last one."""
    messages = [] if most_tokens == 0 else [_message(builder, "analysis", most_tokens)]
    if may_say:
        messages.append(_message(builder, "commentary"))
    several = "*" if most_tokens is None else "?"
    return f"({' | '.join(messages)}){several}" if messages else ""


def _message(builder: GrammarBuilder, channel: str, most_tokens: int | None = None) -> str:
    head = builder.literal(f"{CHANNEL}{channel}{MESSAGE}")
    return builder.rule(f"{head} {builder.until(END, most_tokens)} {builder.literal(NEXT)}")


def _final(builder: GrammarBuilder, form: str) -> list[str]:
    """An answer without a form may leave out its channel, too."""
    head, text = builder.literal(f"{CHANNEL}final{MESSAGE}"), free_text(builder)
    return [f"{head} {form}"] if form else [f"{head} {text}", text]


def _call(tool: Tool, builder: GrammarBuilder) -> str:
    """All heads that models write."""
    recipient = f"to={FUNCTIONS}{tool.name}"
    heads = (
        f" {recipient}{CHANNEL}commentary json{MESSAGE}",
        f"{CHANNEL}commentary {recipient} {CONSTRAIN}json{MESSAGE}",
        f"{CHANNEL}commentary {recipient} json{MESSAGE}",
    )
    return builder.rule(f"({' | '.join(builder.literal(head) for head in heads)}) {builder.schema(tool.schema)}")
