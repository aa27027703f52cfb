"""Tells what a misspelt word was probably meant to be: of commands, options, keys, names and values alike."""

from collections.abc import Iterable


def one_of(words: Iterable[str]) -> str:
    """Write alternatives as ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most like this one; None if none is."""
    from difflib import get_close_matches  # only needed where something is wrong

    return next(iter(get_close_matches(word, sorted(map(str, known)), n=1)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return what a misspelt word was probably meant to be, or else what there is to choose from."""
    choices = sorted(map(str, known))
    if not choices:
        return "there is none"
    close = closest(word, choices)
    return f"did you mean {close!r}?" if close else f"use {one_of(choices)}"
