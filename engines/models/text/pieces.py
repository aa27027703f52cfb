"""The bytes that each token stands for.

A text's bytes are its tokens' bytes, one after the other. That holds for both kinds of tokenizers that decoders have.
The vocabulary of byte-level BPE spells bytes as printable characters. SentencePiece BPE spells a space as U+2581, and
the bytes of unknown characters as ``<0xNN>``. So detokenising is a table look-up and an incremental decoder.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"
_IDS = range(2**32)  # what the library takes for an id

Spelling = Callable[[str], bytes]


class Pieces(dict[int, bytes]):
    """Bytes by token id, filled as they are asked for. Ids without a token, and skipped ones, stand for nothing."""

    def __init__(self, token_of: Callable[[int], str | None], spelling: Spelling, skipped: frozenset[int]) -> None:
        self._token_of = token_of
        self._spelling = spelling
        self._skipped = skipped

    def __missing__(self, token_id: int) -> bytes:
        token = self._token_of(token_id) if token_id in _IDS else None
        if token is None:
            return b""  # not kept: clients may ask for any number
        self[token_id] = piece = b"" if token_id in self._skipped else self._spelling(token)
        return piece


def spelling_of(decoder: Mapping[str, Any]) -> Spelling | None:
    """Return how a ``tokenizer.json`` with this decoder spells bytes; None: in a way that is not known here."""
    kinds = {part["type"] for part in _parts(decoder)}
    if "ByteLevel" in kinds:
        return byte_level_spelling()
    return sentencepiece_spelling if kinds & {"ByteFallback", "Metaspace"} else None


def drops_first_space(decoder: Mapping[str, Any]) -> bool:
    """Return whether the space that SentencePiece puts in front of a text is taken away again."""
    return any(
        (part["type"] == "Strip" and part["start"] > 0)
        or (part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")
        for part in _parts(decoder)
    )


def byte_level_spelling() -> Spelling:
    byte_of = {ord(character): bytes([byte]) for byte, character in byte_alphabet()}

    def spell(token: str) -> bytes:
        try:
            return b"".join([byte_of[ord(character)] for character in token])
        except KeyError:  # an added token, written as it is
            return token.encode()

    return spell


def sentencepiece_spelling(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(_SPACE, " ").encode()


def byte_alphabet() -> Iterator[tuple[int, str]]:
    """Return GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 and on, in order."""
    next_free = 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            yield byte, chr(byte)
        else:
            yield byte, chr(next_free)
            next_free += 1


def _parts(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]
