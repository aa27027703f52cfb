"""Answers with calls, as texts and as what is to be read of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from router.chat.answer_reader import AnswerReader
from router.chat.calls.call_format import Call, CallFormat
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta, joined
from router.chat.reasoning import FORMATS as REASONINGS
from router.chat.tools import Tool

NAMES = ("get_weather", "f", "search.web", "do-it")
TEXTS = (
    "", "Paris", "naïve 日本 🦜", 'say "hi" \\ there', "{not: json}", "]}), [(", "a\nb", "it's", "\\n", "<br> &amp;",
    "<|im_end|>", " edge ", "[TOOL_CALLS", "</tool", "x" * 30,
)  # fmt: skip
WORDS = ("Let me see.", "Ünïcode 🌍 text", "a < b", "1) first\n\n2) second", "of `code`", "end.")
LIKE_JSON = ("null", "12", "true", '{"a": 1}', '"q"')  # text where a schema says so
MARKS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<｜tool▁calls▁begin｜>")
THINK = REASONINGS["think"]


@dataclass(frozen=True)
class Answer:
    """``text`` is read as ``content``, ``reasoning`` and ``calls``."""

    text: str
    content: str
    reasoning: str
    calls: list[Call]
    tools: list[Tool]


def random_answer(random: Random, written: CallFormat, *, thinks: bool = False, may_mark: bool = True) -> Answer:
    reasoning = random.choice(("", "hm", "two\n\nlines <tool> {")) if thinks else ""
    text = f"<think>\n{reasoning}\n</think>\n\n" if thinks and random.random() < 0.8 else ""
    reasoning = reasoning if text else ""
    says = [random.choice(WORDS) if random.random() < 0.6 else "" for _ in range(random.randint(2, 4))]
    calls: list[Call] = []
    for number, said in enumerate(says):
        text += said
        if number == len(says) - 1:
            break
        new = [random_call(random, may_mark=may_mark) for _ in range(random.randint(1, 3))]
        needs_trigger = bool(written.openings) and (said or number)
        text += random.choice(("", "\n", " \n\n")) if said else ""
        text += (written.triggers[0] if needs_trigger else "") + written.write(new)
        text += random.choice(("", "\n", "\n\n  "))
        calls += new
    return Answer(text, "".join(says), reasoning, calls, tools_of(calls))


def random_call(random: Random, *, may_mark: bool = True) -> Call:
    keys = random.sample(("city", "x1", "days", "deep_er"), random.randint(0, 4))
    arguments = {key: random_value(random, may_mark) for key in keys}
    if "city" in arguments:
        arguments["city"] = random.choice((*TEXTS, *LIKE_JSON))
    return random.choice(NAMES), arguments


def random_value(random: Random, may_mark: bool, depth: int = 2) -> Any:
    kind = random.randint(0, 8 if depth else 5)
    if kind == 7:
        return [random_value(random, may_mark, depth - 1) for _ in range(random.randint(0, 3))]
    if kind == 8:
        return {
            random.choice(("a", "ü b", '"q"')): random_value(random, may_mark, depth - 1)
            for _ in range(random.randint(0, 3))
        }
    if kind == 3:
        return random.choice((0, -7, 2**70, 0.5, 1e-9))
    return random.choice((*TEXTS, *MARKS) if may_mark else TEXTS) if kind > 3 else (None, True, False)[kind]


def tools_of(calls: Iterable[Call]) -> list[Tool]:
    """Tools whose schemas tell the types of exactly these arguments; those that differ between calls have any."""
    types: dict[str, dict[str, set[str]]] = {}
    for name, arguments in calls:
        for key, value in arguments.items():
            types.setdefault(name, {}).setdefault(key, set()).add(type_of(value))
    return [
        Tool(name, {"type": "object", "properties": {key: {"type": sorted(kinds)} for key, kinds in keys.items()}})
        for name, keys in types.items()
    ]


def type_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def read(answer: Answer, written: CallFormat, pieces: Sequence[str], *, thinks: bool = False) -> list[Delta]:
    reader = AnswerReader(THINK if thinks else None, written, answer.tools)
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    return joined(deltas + reader.finish())


def content_of(deltas: Iterable[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


def reasoning_of(deltas: Iterable[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))


def names_of(deltas: Iterable[Delta]) -> list[str]:
    return [delta.name for delta in deltas if isinstance(delta, CallBegins)]


def arguments_of(deltas: Sequence[Delta]) -> list[str]:
    """The JSON text of each call's arguments."""
    texts = ["" for _ in names_of(deltas)]
    for delta in deltas:
        if isinstance(delta, CallArguments):
            texts[delta.index] += delta.text
    return texts


def calls_of(deltas: Sequence[Delta]) -> list[Call]:
    return [(name, json.loads(text)) for name, text in zip(names_of(deltas), arguments_of(deltas), strict=True)]


def cut(text: str, places: Iterable[int]) -> list[str]:
    ends = [*sorted(places), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
