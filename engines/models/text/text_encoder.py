"""Tokens of texts and pairs of texts, for models that make no text: any tokenizer will do, and none decodes."""

from pathlib import Path
from typing import Final, NamedTuple

import tokenizers

from engines.models.text.tokenizer_file import load_backend

CHARACTERS: Final = 64  # of a text for each token of a context, on average; more is no text


class EncodedText(NamedTuple):
    """Tokens of a text, or of a pair whose first text has ``first_tokens``; 0: it is one text."""

    tokens: list[int]
    first_tokens: int = 0


class TextEncoder:
    """Encodes texts of one model as sentence-transformers does. ``prompt`` goes before each text that is no pair.

    It reads no more of a text than could ever fit: memory and time are bounded by the context.
    """

    def __init__(self, backend: tokenizers.Tokenizer, prompt: str = "") -> None:
        self._backend = backend
        self._prompt = prompt
        self._num_special = backend.num_special_tokens_to_add(is_pair=False)
        self._num_special_of_pair = backend.num_special_tokens_to_add(is_pair=True)

    @classmethod
    def load(cls, folder: Path, prompt: str = "") -> "TextEncoder":
        """Read a prepared model's folder. Raises `ModelError`."""
        return cls(load_backend(folder), prompt)

    def encode(self, text: str, max_tokens: int, *, cuts: bool) -> EncodedText | None:
        """Return the tokens of a text, special ones around it. With ``cuts``, of as much of it as fits; without, None
        if it does not.
        """
        text = self._prompt + text
        most = max_tokens * CHARACTERS
        if len(text) > most and not cuts:
            return None
        [whole] = self._backend.encode_batch_fast([text[:most]])
        if len(whole.ids) <= max_tokens:
            return EncodedText(list(whole.ids))
        if not cuts:
            return None
        [plain] = self._backend.encode_batch_fast([text[:most]], add_special_tokens=False)
        plain.truncate(max(0, max_tokens - self._num_special))
        return EncodedText(list(self._backend.post_process(plain).ids)[:max_tokens])

    def encode_pair(self, first: str, second: str, max_tokens: int, *, cuts: bool) -> EncodedText | None:
        """Likewise of two texts. What does not fit is cut from the longer one, token by token."""
        most = max_tokens * CHARACTERS
        if len(first) + len(second) > most and not cuts:
            return None
        texts = [first[:most], second[:most]]
        one, other = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        room = max(0, max_tokens - self._num_special_of_pair)
        if len(one.ids) + len(other.ids) > room:
            if not cuts:
                return None
            sizes = _cut(len(one.ids), len(other.ids), room)
            one.truncate(sizes[0])
            other.truncate(sizes[1])
        both = self._backend.post_process(one, other)
        kinds = list(both.type_ids)
        return EncodedText(list(both.ids), kinds.index(1) if 1 in kinds else 0)


def _cut(first: int, second: int, room: int) -> tuple[int, int]:
    """Sizes that fit into ``room`` as Hugging Face's library makes them: the longer one gives way, then both."""
    small, large = sorted((first, second))
    large = max(small, room - small)
    if small + large > room:
        small, large = room // 2, room - room // 2
    return (large, small) if first > second else (small, large)
