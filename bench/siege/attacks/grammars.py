"""Grammars in Lark's syntax, lists of choices, and what is cached of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.siege.answers import LIKE_ANYONE, Answer
from bench.siege.attack import Family, attack, shots
from bench.siege.ground import Ground


def _lark(text: str) -> dict[str, Any]:
    return {"structured_outputs": {"grammar": text}}


def _rules(count: int) -> str:
    return "\n".join(["start: r0", *(f"r{n}: r{n + 1} r{n + 1}" for n in range(count)), f'r{count}: "a"'])


ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lark-left-recursion": ("xgrammar GHSA-9q5r-wfvf-rr7f", _lark('start: start "a" | start')),
    "lark-empty-recursion": ("xgrammar GHSA-9q5r-wfvf-rr7f", _lark("start: a\na: b | \nb: a a")),
    "lark-ambiguous": ("", _lark('start: s\ns: s s | s s s | "a"')),
    "lark-doubling": ("", _lark(_rules(60))),
    "lark-deep-parentheses": ("xgrammar GHSA-5cmr-4px5-23pc", _lark("start: " + "(" * 8000 + '"a"' + ")" * 8000)),
    "lark-nested-repetition": ("ggml-org/llama.cpp#18988", _lark("start: " + "(" * 2000 + '"a"' + ")*" * 2000)),
    "lark-counted": ("", _lark('start: A{1000000,2000000}\nA: "a"')),
    "lark-counted-nested": ("", _lark('start: (("a"{1,1000}){1,1000}){1,1000}')),
    "lark-many-rules": (
        "",
        _lark("start: r0\n" + "\n".join(f'r{n}: "x{n}" | r{n + 1}' for n in range(1500)) + '\nr1500: "y"'),
    ),
    "lark-terminal-counted": ("", _lark("start: A\nA: /(a|b)*a(a|b){400}/")),
    "lark-intersection": ("", _lark("start: A\nA: /.*a.{18}/ & /.*b.{17}/ & ~/.*c.{16}/")),
    "lark-import-missing": ("dottxt-ai/outlines#1610", _lark("start: A\n%import common.NOTHING -> A")),
    "lark-json-inside": (
        "",
        _lark(
            'start: %json {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}'
        ),
    ),
    "lark-special-tokens": ("", _lark("start: <|endoftext|> <[0]> <[999999999999]> <[^0-5]>")),
    "lark-garbage": ("", _lark("\x00\x01" * 8000)),
    "lark-not-a-grammar": ("vllm-project/vllm#16911", _lark("?start: expression\n%%%%")),
    "choice-of-prefixes": ("", {"structured_outputs": {"choice": ["a" * n for n in range(1, 250)]}}),
    "choice-many": ("", {"structured_outputs": {"choice": [f"{n}" for n in range(1024)]}}),
    "choice-odd": ("", {"structured_outputs": {"choice": ["\x00", "\ud800", "\uffff", "a" * 30_000]}}),
    "several-forms": ("", {"structured_outputs": {"choice": ["a"], "regex": "a", "json_object": True}}),
}
shots(Family.GRAMMAR, ROWS, fast=("lark-left-recursion", "lark-counted-nested"))


@attack("grammars-in-turn", Family.GRAMMAR, "GHSA-389x-67px-mjg3", load=4, right=LIKE_ANYONE)
async def grammars_in_turn(ground: Ground) -> Sequence[Answer]:
    """Each is good, and no two are the same: a cache without a bound grows."""
    salt = ground.random.randrange(10**9)
    words = [" ".join(f"w{salt}x{n}x{k}" for k in range(300)) for n in range(120)]
    return await ground.all_of([{"max_tokens": 1, "structured_outputs": {"choice": text.split()}} for text in words])


@attack("grammar-stopped-at-once", Family.GRAMMAR)
async def grammar_stopped(ground: Ground) -> Sequence[Answer]:
    """Answers that a grammar and other parameters contradict."""
    whole = {"structured_outputs": {"choice": ["abc"]}}
    odd: list[Mapping[str, Any]] = [
        {**whole, "min_tokens": 4},
        {**whole, "stop_token_ids": list(range(64))},
        {**whole, "logit_bias": {str(n): -100 for n in range(200)}},
        {**whole, "temperature": 2.0, "top_k": 1, "min_p": 1.0},
        {**whole, "ignore_eos": True},
        {**whole, "echo": True, "logprobs": 5},
        {**whole, "stop": ["a", "b", "c"], "n": 8},
    ]
    return await ground.all_of(odd)
