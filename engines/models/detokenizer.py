"""Tokens to text while they come, one stream an object."""

import codecs
from collections.abc import Iterable

from engines.models.pieces import Pieces

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Gives whole characters only: the bytes of an unfinished one wait for the tokens that finish it."""

    __slots__ = ("_decode", "_drop_space", "_pieces")

    def __init__(self, pieces: Pieces, drop_first_space: bool) -> None:
        self._pieces = pieces
        self._decode = _new_decoder("replace").decode
        self._drop_space = drop_first_space

    def feed(self, tokens: Iterable[int]) -> str:
        """The text that these tokens complete."""
        pieces = self._pieces
        text = self._decode(b"".join([pieces[token] for token in tokens]))
        return self._without_first_space(text) if self._drop_space and text else text

    def finish(self) -> str:
        """What is left: replacement characters for an unfinished character."""
        return self._decode(b"", True)

    def _without_first_space(self, text: str) -> str:
        self._drop_space = False
        return text.removeprefix(" ")
