"""Regular expressions: broken ones, and those whose automata are too large."""

from collections.abc import Mapping
from typing import Any

from bench.siege.attack import Family, shots

VLLM_REGEX = "vllm-project/vllm#17313"


def _regex(text: str) -> dict[str, Any]:
    return {"structured_outputs": {"regex": text}}


ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "regex-unbalanced": (VLLM_REGEX, _regex("[a-z")),
    "regex-double-star": ("vllm-project/vllm#19270", _regex("foo**")),
    "regex-counted": ("", _regex("((a{1,1000}){1,1000}){1,1000}")),
    "regex-counted-huge": ("", _regex("a{999999999}")),
    "regex-window": ("", _regex("(a|b)*a(a|b){500}")),
    "regex-backtracking": ("vllm-project/vllm GHSA-w6q7-j642-7c25", _regex("(a+)+(a*)*(a|a)*b")),
    "regex-lookaround": ("", _regex("(?=a)(?<!b)(?!c)a")),
    "regex-back-reference": ("", _regex("(a)\\1{100}")),
    "regex-unicode-classes": ("", _regex("[\\p{L}\\p{N}\\p{P}]{1,2000}[^\\p{Lu}]{1,2000}")),
    "regex-deep": ("", _regex("(" * 10_000 + "a" + ")" * 10_000)),
    "regex-alternatives": ("", _regex("|".join(f"a{n}b{n * 7919 % 5003}" for n in range(2600)))),
    "regex-null": ("", _regex("\x00{1,99999}")),
    "regex-empty-language": ("", _regex("[^\\x00-\\U0010ffff]")),
    "regex-flags": ("", _regex("(?i)(?s)(?x)(?U)" * 100 + "a")),
    "regex-surrogate": ("", _regex("\ud800+")),
    "regex-long": ("", _regex("." * 32_768)),
    "regex-too-long": ("", _regex("." * 2_000_000)),
}
shots(Family.GRAMMAR, ROWS, fast=("regex-double-star", "regex-window"))
