"""Answers that keep to a grammar: which tokens may come next, by llguidance.

A grammar is text of llguidance's, made and checked by a gateway. All the state that there is are the tokens so far: a
request that comes from another engine, or back after it was preempted, is followed from its first token again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from engines.batch import Draw

MAX_FOLLOWED = 512  # requests; one more costs another its place, and that one is followed anew


class GrammarError(ValueError):
    """A grammar that cannot be followed. The text is for the client."""


@dataclass(slots=True)
class _Followed:
    """One request: ``tokens`` of its answer are behind the matcher."""

    grammar: str
    matcher: LLMatcher
    tokens: list[int] = field(default_factory=list)


class Grammars:
    """Of one model, whose tokenizer is in ``folder``: read when the first grammar comes, in 0.4 s with 49k tokens."""

    def __init__(self, folder: Path, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._eos_token_ids = list(eos_token_ids)
        self._followed: OrderedDict[str, _Followed] = OrderedDict()  # by request

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        text = (self._folder / "tokenizer.json").read_text(encoding="utf-8")
        try:
            return LLTokenizer(text, n_vocab=self._vocab_size, eos_token=self._eos_token_ids)
        except ValueError as error:
            raise GrammarError(f"this model's tokenizer cannot follow grammars: {reason_of(str(error))}") from None

    def allowed(self, draw: Draw) -> NDArray[np.bool_]:
        """Tokens that may be drawn, [vocabulary]. Those that end an answer are among them where it may end.

        Raise `GrammarError`.
        """
        followed = self._follow(draw.request, draw.sampling.grammar, list(draw.generated))
        bits = np.frombuffer(followed.matcher.compute_bitmask(), np.uint8)
        _check(followed.matcher)
        return np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)

    def _follow(self, request: str, grammar: str, generated: list[int]) -> _Followed:
        followed = self._followed.pop(request, None)
        if followed is None or followed.grammar != grammar or followed.tokens != generated[: len(followed.tokens)]:
            followed = _Followed(grammar, LLMatcher(self._tokenizer, grammar, log_level=0))
            _check(followed.matcher)
        new = generated[len(followed.tokens) :]
        if new and not followed.matcher.consume_tokens(new):
            raise GrammarError("the answer so far does not keep to the grammar")
        followed.tokens += new
        self._followed[request] = followed
        while len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)
        return followed


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise GrammarError(f"the grammar cannot be followed: {reason_of(matcher.get_error())}")


def reason_of(text: str) -> str:
    """What llguidance says of a fault, in one line: the first one, and that of an error in a regular expression."""
    lines = [line.strip() for line in text.strip().splitlines()] or ["no reason given"]
    return " ".join([lines[0], *(line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: "))])
