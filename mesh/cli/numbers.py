"""Reads numbers from the arguments of commands. What does not fit raises `argparse.ArgumentTypeError`, in a line."""

import argparse
from collections.abc import Callable


def positive(text: str) -> float:
    """Return a number that is finite and more than 0."""
    value = _number(text, 0.0)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a number greater than 0")
    return value


def seconds_up_to(most_s: float, what: str) -> Callable[[str], float]:
    """Return what reads seconds from 0 to ``most_s``. ``what``: how long the most is, in words."""

    def read(text: str) -> float:
        value = _number(text, -1.0)
        if not 0 <= value <= most_s:
            raise argparse.ArgumentTypeError(f"{text!r} does not fit; use seconds from 0 to {most_s:g}, {what}")
        return value

    return read


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a whole number of at least 1")
    return int(text)


def counts(text: str) -> list[int]:
    """Return several, as ``1,8,64``, in ascending order."""
    return sorted({count(part) for part in text.split(",")})


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
