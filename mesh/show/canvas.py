"""A field of characters on which curves are drawn: dots of Braille where there are colours, else a letter a curve."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Final

DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a character of Braille: rows of columns
SYMBOLS: Final = ("●", "■", "▲", "◆", "○", "□", "△", "◇")
ASCII_SYMBOLS: Final = ("*", "+", "o", "x", "#", "@", "%", "&")


@dataclass(slots=True)
class Canvas:
    """``width`` and ``height`` in characters. Places are from 0 to 1, from the lower left corner.

    ``pens`` has the number of the curve that wrote each character last; `GUIDE_PEN` is of lines behind the curves.
    """

    width: int
    height: int
    has_dots: bool
    is_ascii: bool
    letters: dict[tuple[int, int], str] = field(default_factory=dict)
    pens: dict[tuple[int, int], int] = field(default_factory=dict)

    def line(self, points: Sequence[tuple[float, float]], pen: int) -> None:
        """Join the points. A point that is not finite is a gap."""
        for start, end in pairwise(points):
            if all(map(isfinite, (*start, *end))):
                steps = max(
                    1, round(2 * max(abs(end[0] - start[0]) * self.width, abs(end[1] - start[1]) * self.height))
                )
                for step in range(2 * steps + 1):
                    share = step / (2 * steps)
                    self.dot(start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]), pen)

    def dot(self, x: float, y: float, pen: int) -> None:
        """Draw a dot. What lies outside is left out."""
        if not (isfinite(x) and isfinite(y) and 0 <= x <= 1 and 0 <= y <= 1):
            return
        if self.has_dots:
            column, row = (
                min(int(2 * self.width * x), 2 * self.width - 1),
                min(int(4 * self.height * (1 - y)), 4 * self.height - 1),
            )
            place, bit = (row // 4, column // 2), DOTS[row % 4][column % 2]
            before = self.letters.get(place, "⠀") if self.pens.get(place, -1) >= 0 else "⠀"
            self.letters[place] = chr(ord(before) | bit)
        else:
            place = min(int(self.height * (1 - y)), self.height - 1), min(int(self.width * x), self.width - 1)
            self.letters[place] = symbol(pen, is_ascii=self.is_ascii)
        self.pens[place] = pen

    def guide(self, at: float, *, is_upright: bool) -> None:
        """Draw a line across the field, behind the curves."""
        if not 0 <= at <= 1:
            return
        if is_upright:
            column = min(int(self.width * at), self.width - 1)
            places, letter = [(row, column) for row in range(self.height)], "|" if self.is_ascii else "┊"
        else:
            row = min(int(self.height * (1 - at)), self.height - 1)
            places, letter = [(row, column) for column in range(self.width)], "-" if self.is_ascii else "┄"
        for place in places:
            if place not in self.pens:
                self.letters[place], self.pens[place] = letter, GUIDE_PEN

    def row(self, number: int) -> list[tuple[str, int]]:
        """Characters and pens of one row, the first on top; `NO_PEN` where nothing is drawn."""
        places = ((number, column) for column in range(self.width))
        return [(self.letters.get(place, " "), self.pens.get(place, NO_PEN)) for place in places]


NO_PEN: Final = -1
GUIDE_PEN: Final = -2


def symbol(pen: int, *, is_ascii: bool) -> str:
    symbols = ASCII_SYMBOLS if is_ascii else SYMBOLS
    return symbols[pen % len(symbols)]
