"""Encodes prompts of plain ASCII by a cache of words and their tokens.

A tokenizer cuts a text at its special tokens, then into words by a regular expression, and what becomes of a word does
not depend on its neighbours. The library does all of this anew for each text, and tells where each token came from,
which nobody asks here. So words are looked up, and the library encodes those that were not seen before, and cuts them
where it must: a cut too few changes nothing. Only ASCII: there, Python's regular expressions mean what the library's
mean. Only tokenizers of which all of this is known: others, and other texts, are left to the library.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

MAX_WORDS: Final = 65_536  # remembered
MAX_LETTERS: Final = 32  # of a word that is remembered
MAX_KEPT: Final = 524_288  # letters of all words that are remembered, for about 20 MiB at the worst
MAX_LEARNED: Final = 256  # new words of one text; the library is faster where there are more

# Cutting rules of the byte-level tokenizers, for ASCII: letters for \p{L}, digits for \p{N}.
_GPT2 = r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_START, _END = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_SPLITS: Final[Mapping[str, str]] = {
    rf"{_START}\p{{N}}{{1,3}}{_END}": _LLAMA3,
    rf"{_START}\p{{N}}{_END}": _LLAMA3.replace("{1,3}", ""),  # Qwen 2 and 3
}


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool

    @property
    def is_plain(self) -> bool:
        return bool(self.content) and not (self.single_word or self.lstrip or self.rstrip or self.normalized)


class _Model(msgspec.Struct):
    type: str | None = None
    dropout: float | None = None


class _File(msgspec.Struct):
    """What matters here of a tokenizer.json."""

    added_tokens: list[_AddedToken]
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any] | None
    model: _Model


class Words:
    """Tokenises long texts word by word. ``encode`` is the library's, of a text without special tokens around it."""

    def __init__(self, special: Mapping[str, int], pattern: str, encode: Callable[[str], list[int]]) -> None:
        longest_first = sorted(special, key=len, reverse=True)
        self._special = special
        self._split = re.compile(f"({'|'.join(map(re.escape, longest_first))})").split if special else None
        self._words_of = re.compile(pattern, re.ASCII).findall
        self._encode = encode
        self._known: dict[str, list[int]] = {}
        self._num_letters = 0  # of those

    def __repr__(self) -> str:
        return f"<Words {len(self._known)} known>"

    @classmethod
    def load(cls, folder: Path, encode: Callable[[str], list[int]]) -> "Words | None":
        """Load the words of a prepared model; None if its tokenizer does anything else than what is said above."""
        try:
            file = msgspec.json.decode((folder / "tokenizer.json").read_bytes(), type=_File)
        except msgspec.ValidationError:
            return None
        pattern = _pattern(file.pre_tokenizer)
        is_plain = file.normalizer is None and all(token.is_plain for token in file.added_tokens)
        if pattern is None or not is_plain or file.model.type != "BPE" or file.model.dropout:
            return None
        return cls({token.content: token.id for token in file.added_tokens}, pattern, encode)

    def encode(self, text: str) -> list[int] | None:
        """Encode a text. None if the text is not for this, or too much of it is new."""
        if not text.isascii():
            return None
        tokens: list[int] = []
        known, num_new = self._known, 0
        for part in self._split(text) if self._split else (text,):
            special = self._special.get(part)
            if special is not None:
                tokens.append(special)
                continue
            for word in self._words_of(part):
                found = known.get(word)
                if found is None:
                    num_new += 1
                    if num_new > MAX_LEARNED:
                        return None
                    found = self._learn(word)
                tokens += found
        return tokens

    def _learn(self, word: str) -> list[int]:
        tokens = self._encode(word)
        if len(word) <= MAX_LETTERS:
            if len(self._known) >= MAX_WORDS or self._num_letters >= MAX_KEPT:
                self._known.clear()
                self._num_letters = 0
            self._known[word] = tokens
            self._num_letters += len(word)
        return tokens


def _pattern(pre_tokenizer: Mapping[str, Any] | None) -> str | None:
    """How it cuts ASCII; None if that is not known."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return _GPT2
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return _SPLITS.get(regex)
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            ],
        }:  # a digit ends the text that the rest of the rule sees
            return _GPT2.replace(" ?[0-9]+", "[0-9]").replace(r"(?!\S)", r"(?![^\s0-9])")
    return None
