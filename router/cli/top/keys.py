"""Bytes of a terminal, read as keys."""

import codecs
from typing import Final

ESCAPE: Final = "\x1b"
MOST_LETTERS: Final = 16  # of one escape sequence
NAMES: Final = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    " ": "space",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x0c": "redraw",
}
FINALS: Final = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "back-tab"}
NUMBERS: Final = {"1": "home", "4": "end", "5": "page-up", "6": "page-down", "7": "home", "8": "end"}


class Keys:
    """Letters stand for themselves, other keys have names. Sequences may come in pieces; unknown ones are left out."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._begun = ""

    @property
    def is_open(self) -> bool:
        """Return whether a sequence has begun, which a short while later was the Esc key."""
        return bool(self._begun)

    def feed(self, data: bytes) -> list[str]:
        return [key for letter in self._decode(data) for key in self._take(letter)]

    def flush(self) -> list[str]:
        """Nothing came for a while: what has begun is no sequence."""
        begun, self._begun = self._begun, ""
        return ["esc"] if begun == ESCAPE else []

    def _take(self, letter: str) -> list[str]:
        if self._begun == ESCAPE and letter not in "[O":  # Alt with a key, or Esc and then the key
            self._begun = ""
            return ["esc", *self._take(letter)]
        if self._begun:
            return self._go_on(letter)
        if letter == ESCAPE:
            self._begun = letter
            return []
        return [NAMES.get(letter, letter)] if letter in NAMES or letter.isprintable() else []

    def _go_on(self, letter: str) -> list[str]:
        if letter == ESCAPE:
            self._begun = letter
            return []
        self._begun += letter
        is_prefix = len(self._begun) == 2
        if is_prefix or (not "@" <= letter <= "~" and len(self._begun) < MOST_LETTERS):
            return []
        sequence, self._begun = self._begun, ""
        key = NUMBERS.get(sequence[2:-1]) if letter == "~" else FINALS.get(letter)
        return [key] if key else []
