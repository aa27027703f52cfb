"""Words whose tokens add up: the material of prompts of exact lengths.

A tokenizer that splits texts into words before it splits words into tokens (byte-level BPE and SentencePiece do) gives
a text of words the tokens of its words, one after the other. Common words are one token each. Where words are several
tokens (byte-level models), letters are one.
"""

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Protocol

from bench.load.generator.wire import Api, Piece
from mesh.errors import UserError

COMMON = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one"
    " you were her all she there would their we him been has when who will more no if out so said what up its about"
    " into than them can only other new some could time these two may then do first any my now such like our over man"
    " me even most made after also did many before must through back years where much your way well down should because"
    " each just those people too how little state good very make world still own see men work long get here between"
    " both life being under never day same another know while last might us great old year off come since against go"
    " came right used take three states himself few house use during without again place around however home small"
    " found thought went say part once general high upon school every does got united left number course war until"
    " always away something fact though water less public put think almost hand enough far took head yet government"
)
WORDS = COMMON.split()
FEWEST_WORDS, SHORT, LONG = 16, 8, 72
MOST_TOKENS = 3  # of a word on average; a tokenizer that needs more has no tokens for words


class Tokens(Protocol):
    """Counts as the server does: its own tokenizer, or a copy of it here."""

    @property
    def name(self) -> str: ...

    async def encode(self, text: str) -> list[int]:
        """Without special tokens."""

    async def count(self, api: Api, text: str) -> int:
        """Tokens of a prompt that is sent as this text, with all that the server puts around it."""


async def fillers(tokens: Tokens) -> tuple[Piece, ...]:
    """Pieces of one token each. Raise `UserError` if there are none."""
    words = await _single(tokens, [f" {word}" for word in WORDS])
    found = words if len(words) >= FEWEST_WORDS else await _single(tokens, list(ascii_lowercase))
    if not found:
        raise UserError(f"{tokens.name}: neither words nor letters are single tokens; give --chats or --text")
    return tuple(found)


async def _single(tokens: Tokens, texts: Sequence[str]) -> list[Piece]:
    """Those of the texts that are one token each: if all of them together have as many tokens, each has one."""
    ids = await tokens.encode("".join(texts))
    if len(ids) == len(texts):
        return [Piece(text, (token,)) for text, token in zip(texts, ids, strict=True)]
    if len(texts) == 1 or len(ids) > MOST_TOKENS * len(texts):
        return []
    middle = len(texts) // 2
    return [*await _single(tokens, texts[:middle]), *await _single(tokens, texts[middle:])]


async def overhead(tokens: Tokens, api: Api, pieces: Sequence[Piece]) -> int | None:
    """Tokens around a text of such pieces; None if texts of them do not add up."""
    counts = []
    for length in (SHORT, LONG):
        text = "".join(pieces[index % len(pieces)].text for index in range(length))
        counts.append(await tokens.count(api, text) - length)
    return counts[0] if counts[0] == counts[1] else None


async def running_ids(tokens: Tokens, text: str) -> tuple[Piece, ...]:
    """The tokens of a text, each a piece: for prompts that are sent as token ids."""
    return tuple(Piece("", (token,)) for token in await tokens.encode(text))


async def running_words(tokens: Tokens, text: str) -> tuple[Piece, ...]:
    """The words of a text with their tokens: for prompts that are sent as texts."""
    known: dict[str, Piece] = {}
    pieces = []
    for word in text.split():
        if word not in known:
            known[word] = Piece(f" {word}", tuple(await tokens.encode(f" {word}")))
        pieces.append(known[word])
    return tuple(pieces)


def assumed() -> tuple[Piece, ...]:
    """Common words, taken to be one token each: for servers whose tokenizer nobody knows."""
    return tuple(Piece(f" {word}") for word in WORDS)
