"""Texts and pairs against transformers' fast tokenizer of BERT, truncation included."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engines.models.errors import ModelError
from engines.models.text.text_encoder import CHARACTERS, EncodedText, TextEncoder
from tests.engines.models.word_piece import WORDS, write_word_piece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast as Theirs


@pytest.fixture
def theirs(tmp_path: Path) -> "Theirs":
    return write_word_piece(tmp_path)


@pytest.fixture
def ours(tmp_path: Path, theirs: "Theirs") -> TextEncoder:
    return TextEncoder.load(tmp_path)


def sentence(num_words: int) -> str:
    return " ".join(WORDS[index % len(WORDS)] for index in range(num_words))


@pytest.mark.parametrize("num_words", [1, 5, 20])
@pytest.mark.parametrize("max_tokens", [3, 8, 30])
def test_texts_are_cut_as_transformers_cuts_them(ours: TextEncoder, theirs: "Theirs", num_words: int, max_tokens: int):
    text = sentence(num_words)
    wanted = theirs(text, truncation=True, max_length=max_tokens)["input_ids"]
    assert ours.encode(text, max_tokens, cuts=True) == EncodedText(wanted)
    fits = len(theirs(text)["input_ids"]) <= max_tokens
    assert (ours.encode(text, max_tokens, cuts=False) is not None) == fits


@pytest.mark.parametrize(("first", "second"), [(2, 3), (20, 3), (3, 20), (20, 20), (20, 21), (1, 1)])
@pytest.mark.parametrize("max_tokens", [5, 8, 13, 60])
def test_pairs_are_cut_as_transformers_cuts_them(
    ours: TextEncoder, theirs: "Theirs", first: int, second: int, max_tokens: int
):
    one, other = sentence(first), sentence(second)
    wanted = theirs(one, other, truncation="longest_first", max_length=max_tokens, return_token_type_ids=True)
    kinds = wanted["token_type_ids"]
    assert ours.encode_pair(one, other, max_tokens, cuts=True) == EncodedText(wanted["input_ids"], kinds.index(1))


def test_a_prompt_goes_before_each_text(tmp_path: Path, theirs: "Theirs"):
    ours = TextEncoder.load(tmp_path, prompt="the quick ")
    assert ours.encode("fox", 30, cuts=False) == EncodedText(theirs("the quick fox")["input_ids"])


def test_no_more_is_read_of_a_text_than_could_fit(ours: TextEncoder):
    endless = "fox " * CHARACTERS * 8
    assert ours.encode(endless, 8, cuts=False) is None
    assert ours.encode_pair(endless, "fox", 8, cuts=False) is None
    cut = ours.encode(endless, 8, cuts=True)
    assert cut is not None
    assert len(cut.tokens) == 8


def test_a_damaged_tokenizer_is_named(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json: "):
        TextEncoder.load(tmp_path)
