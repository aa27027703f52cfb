"""Prompts for text between a beginning and an end (``suffix``), in the order in which models were taught it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

TokenOf = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """The special tokens around what comes before (``prefix``) and after (``suffix``); the answer follows ``middle``,
    which some models do without. ``is_suffix_first``: the end comes first.
    """

    prefix: int
    suffix: int
    middle: int | None
    is_suffix_first: bool = False

    def prompt(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """Return the tokens of a prompt."""
        first, last = [self.prefix, *before], [self.suffix, *after]
        parts = [*last, *first] if self.is_suffix_first else [*first, *last]
        return parts if self.middle is None else [*parts, self.middle]


# The names of the three tokens by family, with the source that says so.
_FAMILIES: Final = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma: their model cards
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder2, granite-code: arXiv 2402.19173
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder: arXiv 2301.03988
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),  # Code Llama: arXiv 2308.12950
)


def infill_tokens(token_of: TokenOf) -> InfillTokens | None:
    """Return the tokens that a model has for this. None: it was not made to fill in. ``token_of`` gives the id of a
    special token.
    """
    for names in _FAMILIES:
        prefix, suffix, middle = map(token_of, names)
        if prefix is not None and suffix is not None and middle is not None:
            return InfillTokens(prefix, suffix, middle)
    prefix, suffix = token_of("[PREFIX]"), token_of("[SUFFIX]")  # Codestral: mistral-common
    if prefix is None or suffix is None:
        return None
    return InfillTokens(prefix, suffix, None, is_suffix_first=True)
