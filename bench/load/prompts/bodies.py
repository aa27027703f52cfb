"""Bodies of requests: prompts of exact lengths, with beginnings that are shared or are not."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from random import Random

import msgspec

from bench.load.generator.wire import Piece, Recipe, Shape
from router.history.records import PROMPT_BLOCK

KEPT_BLOCKS = 4096  # in memory


class Bodies:
    """Makes the same body for the same number, always."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._pieces = [recipe.fillers[index % len(recipe.fillers)] for index in range(256)] if recipe.fillers else []
        self._block = lru_cache(KEPT_BLOCKS)(self._make_block)

    def make(self, number: int, shape: Shape, origin: int | None = None) -> bytes:
        """``origin``: the number of its conversation's first turn, with which its prompt begins; None: it is alone."""
        recipe = self._recipe
        words = self._prompt(number if origin is None else origin, shape)
        fields = {**recipe.fields, "model": shape.model, **words}
        if shape.num_output:
            fields["max_tokens"] = shape.num_output
        return msgspec.json.encode(fields)

    def _prompt(self, number: int, shape: Shape) -> dict[str, object]:
        recipe = self._recipe
        if shape.chat is not None:
            chat = recipe.chats[shape.chat]
            words: object = chat.messages if recipe.api == "chat" and chat.messages is not None else chat.prompt
        else:
            pieces = self.pieces(number, shape)
            words = [*chain.from_iterable(piece.ids for piece in pieces)] if recipe.sends_ids else text_of(pieces)
        if recipe.api == "completions":
            return {"prompt": words}
        return {"messages": [{"role": "user", "content": words}] if isinstance(words, str) else words}

    def pieces(self, number: int, shape: Shape) -> list[Piece]:
        """``num_input`` tokens in all, with what the server puts around them."""
        wanted = max(1, shape.num_input - self._recipe.overhead)
        beginning = list(chain.from_iterable(self._block(block) for block in shape.blocks))
        if self._recipe.prefix_tokens:
            which = Random(f"{self._recipe.seed}/which/{number}").randrange(self._recipe.num_prefixes)
            beginning = self._drawn(f"{self._recipe.seed}/prefix/{which}", self._recipe.prefix_tokens)
        beginning = first_tokens(beginning, wanted)
        rest = wanted - num_tokens(beginning)
        return [*beginning, *self._drawn(f"{self._recipe.seed}/{number}", rest)]

    def _make_block(self, block: int) -> list[Piece]:
        return self._drawn(f"{self._recipe.seed}/block/{block}", PROMPT_BLOCK)

    def _drawn(self, key: str, count: int) -> list[Piece]:
        """``count`` tokens, the same for the same key."""
        random = Random(key)
        if not self._recipe.running:
            return self._filled(random, count)
        text = self._recipe.running
        start = random.randrange(len(text))
        turned = chain(text[start:], text[:start])
        drawn = first_tokens(turned, count)
        return [*drawn, *self._filled(random, count - num_tokens(drawn))]

    def _filled(self, random: Random, count: int) -> list[Piece]:
        """More of the same for a larger ``count``: random bytes are made four at a time."""
        return [self._pieces[byte] for byte in random.randbytes(-(-count // 4) * 4)[:count]]


def first_tokens(pieces: Iterable[Piece], limit: int) -> list[Piece]:
    """As many pieces from the first on as have ``limit`` tokens at most."""
    taken, count = [], 0
    for piece in pieces:
        count += piece.num_tokens
        if count > limit:
            break
        taken.append(piece)
    return taken


def num_tokens(pieces: Iterable[Piece]) -> int:
    return sum(piece.num_tokens for piece in pieces)


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)
