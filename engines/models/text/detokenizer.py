"""Tokens to text while they come, one stream an object."""

from codecs import utf_8_decode
from collections.abc import Sequence

from engines.models.text.pieces import Pieces


class Detokenizer:
    """Gives whole characters only: the bytes of an unfinished one wait for the tokens that finish it."""

    __slots__ = ("_drop_space", "_pieces", "_rest")

    def __init__(self, pieces: Pieces, drop_first_space: bool) -> None:
        self._pieces = pieces
        self._rest = b""  # of an unfinished character
        self._drop_space = drop_first_space

    def feed(self, tokens: Sequence[int]) -> str:
        """The text that these tokens complete."""
        pieces = self._pieces
        data = pieces[tokens[0]] if len(tokens) == 1 else b"".join([pieces[token] for token in tokens])
        if self._rest:
            data = self._rest + data
        text, num_taken = utf_8_decode(data, "replace")
        self._rest = data[num_taken:]
        return self._without_first_space(text) if self._drop_space and text else text

    def finish(self) -> str:
        """Return what is left: replacement characters for an unfinished character."""
        rest, self._rest = self._rest, b""
        return utf_8_decode(rest, "replace", True)[0]

    def _without_first_space(self, text: str) -> str:
        self._drop_space = False
        return text.removeprefix(" ")
