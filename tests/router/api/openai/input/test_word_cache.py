"""Words from memory are the library's tokens, whatever the text."""

import json
import shutil
from itertools import product
from random import Random

import pytest
import tokenizers
from tokenizers import Regex, models, pre_tokenizers, processors, trainers

from mesh.topology.schema import ServiceSpec, Slo
from router.api.openai.input.word_cache import _SPLITS, MAX_LETTERS, MAX_WORDS, Words
from router.api.openai.models import ServedModel
from tests.seeds import each_seed

LLAMA3, QWEN2 = _SPLITS
SPECIAL = ["<|end|>", "<|end|>x", "<s>"]
PROSE = "Hello world, it's the 1234567 quick brown foxes' day; they'll   jump\n\n\tover. WE'RE here (x = 42)!"
# Everything that a cutting rule tells apart, and what could be taken for it.
LETTERS = [
    *"aZ'srevlmtd09 \t\n\r\v\f\x1c\x1f\x00\x7f.<|_-",
    "  ",
    "'ll",
    "'RE",
    "<|end|>",
    "<|end|>x",
    "<s>",
    "123",
    "\n\n",
]


def split(regex):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level])


def digits():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])


RULES = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": split(LLAMA3),
    "qwen2": split(QWEN2),
    "digits": digits(),
}


def trained(pre_tokenizer):
    """Of texts that were not cut, so that it has tokens across all cuts: a wrong cut shows."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=SPECIAL, initial_alphabet=alphabet)
    backend.train_from_iterator(["".join(pair) for pair in product(LETTERS, repeat=2)] * 2, trainer)
    backend.pre_tokenizer = pre_tokenizer
    return backend


def words_of(backend, folder, **changes):
    saved = json.loads(backend.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(saved | changes))
    return Words.load(folder, lambda text: backend.encode(text, add_special_tokens=False).ids)


@pytest.fixture(params=RULES)
def backend(request):
    return trained(RULES[request.param])


def test_short_texts_of_all_kinds(backend, tmp_path):
    words = words_of(backend, tmp_path)
    texts = ["".join(letters) for count in range(4) for letters in product(LETTERS, repeat=count)]
    expected = backend.encode_batch(texts, add_special_tokens=False)
    wrong = [text for text, tokens in zip(texts, expected, strict=True) if words.encode(text) != tokens.ids]
    assert not wrong


@each_seed(range(5))
def test_long_texts(backend, tmp_path, seed):
    draw, words = Random(seed), words_of(backend, tmp_path)
    for _ in range(200):
        text = "".join(draw.choices([*LETTERS, *map(chr, range(128)), *PROSE.split(" ")], k=draw.randint(4, 60)))
        assert words.encode(text) == backend.encode(text, add_special_tokens=False).ids


def test_other_texts_are_left_to_the_library(backend, tmp_path):
    words = words_of(backend, tmp_path)
    assert words.encode("caf\u00e9") is None
    assert words.encode("") == []


def test_other_tokenizers_are_left_to_the_library(backend, tmp_path):
    saved = json.loads(backend.to_str())
    strips = [saved["added_tokens"][0] | {"lstrip": True}]
    assert words_of(backend, tmp_path) is not None
    assert words_of(backend, tmp_path, added_tokens=strips) is None
    assert words_of(backend, tmp_path, normalizer={"type": "Lowercase"}) is None
    assert words_of(backend, tmp_path, pre_tokenizer={"type": "Whitespace"}) is None
    assert words_of(backend, tmp_path, pre_tokenizer=None) is None
    assert words_of(backend, tmp_path, model=saved["model"] | {"dropout": 0.1}) is None


def test_what_is_remembered_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("router.api.openai.input.word_cache.MAX_WORDS", 8)
    words = words_of(trained(RULES["gpt2"]), tmp_path)
    for number in range(100):
        words.encode(f"{number} {'x' * MAX_LETTERS}")
    assert len(words._known) <= 8 < MAX_WORDS
    assert max(map(len, words._known)) <= MAX_LETTERS


@pytest.mark.parametrize("begins_with_bos", [False, True])
@pytest.mark.parametrize("text", ["Hello world", "caf\u00e9"])
def test_a_model_encodes_as_its_tokenizer_does(model_folder, tmp_path, begins_with_bos, text):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    if begins_with_bos:
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        backend.post_processor = processors.TemplateProcessing("<|im_start|> $0", special_tokens=[("<|im_start|>", 1)])
        backend.save(str(folder / "tokenizer.json"))
    model = ServedModel.load(ServiceSpec("tiny", str(folder), Slo(1.0, 0.1)), folder)
    assert model.words is not None
    for add in (False, True):
        tokens = model.encode(text, add_special_tokens=add)
        assert tokens == model.tokenizer.encode(text, add)
        assert (tokens[0] == 1) == (begins_with_bos and add)
