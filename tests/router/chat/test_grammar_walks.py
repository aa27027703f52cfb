"""Whatever the grammar of a format allows is read as calls of the tools, with arguments that keep to their schemas."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from router.chat.answer_grammar import answer_grammar
from router.chat.answer_reader import AnswerReader
from router.chat.calls.call_format import Call, CallFormat
from router.chat.calls.formats import ALL, FORMATS, HARMONY
from router.chat.calls.harmony import Harmony
from router.chat.channel_grammar import channel_grammar
from router.chat.channel_reader import ChannelReader
from router.chat.deltas import Delta, joined
from router.chat.tools import Choosing, Tool, ToolUse
from tests.router.chat.calls.answers import calls_of, content_of, names_of
from tests.seeds import seeds

INNER = {
    "type": "object",
    "properties": {"deep": {"type": "array", "items": {"type": "integer"}}, "on": {"type": "boolean"}},
    "required": ["deep"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "days": {"type": "integer"},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "set.all": {
        "type": "object",
        "properties": {"inner": INNER, "level": {"type": "number"}, "is-on": {"type": "boolean"}},
        "required": ["inner", "is-on"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [Tool(name, schema) for name, schema in SCHEMAS.items()]
MOST_TOKENS = 400
LIKELY = frozenset(b'"}]>\n)')  # what ends something is taken often, so that walks end


class Vocabulary:
    """All bytes, and some markers as special tokens."""

    def __init__(self, markers: tuple[str, ...], folder: Path) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({letter: id_ for id_, letter in enumerate(letters)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("</s>", *markers)])
        self._tokenizer = tokenizer
        tokenizer.save(str(folder / "tokenizer.json"))
        self.ll = LLTokenizer(str(folder / "tokenizer.json"), eos_token=self.end)
        self.bytes = [self._bytes(id_) for id_ in range(tokenizer.get_vocab_size())]

    @property
    def end(self) -> int:
        return int(self._tokenizer.token_to_id("</s>"))

    def special_token(self, text: str) -> int | None:
        id_ = self._tokenizer.token_to_id(text)
        return id_ if id_ is not None and len(text) > 1 else None

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def _bytes(self, id_: int) -> bytes:
        text = str(self._tokenizer.id_to_token(id_))
        return bytes((_BYTES[text],)) if text in _BYTES else text.encode()


def _byte_letters() -> dict[str, int]:
    """Letters of byte-level tokenizers and the bytes that they stand for, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + number): byte for number, byte in enumerate(others)}


_BYTES = _byte_letters()


def walk(random: Random, grammar: str, vocabulary: Vocabulary, tags: Sequence[str]) -> str | None:
    """Return a random text that a grammar allows. None: the walk is too long. Tags that are begun are often ended."""
    matcher = LLMatcher(vocabulary.ll, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    text = b""
    for _ in range(MOST_TOKENS):
        bias = matcher.compute_logit_bias()
        allowed = [id_ for id_, weight in enumerate(bias[: len(vocabulary.bytes)]) if weight]
        if not allowed:
            return text.decode()
        plain = [id_ for id_ in allowed if id_ == vocabulary.end or vocabulary.bytes[id_].isascii()]
        if (byte := _next_of_tag(text, tags)) in allowed_bytes(vocabulary, plain) and random.random() < 0.9:
            plain = [id_ for id_ in plain if vocabulary.bytes[id_][:1] == byte]
        ends = [id_ for id_ in plain if vocabulary.bytes[id_][0] in LIKELY or id_ == vocabulary.end]
        chosen = random.choice(ends if ends and random.random() < 0.3 else plain or allowed)
        if chosen == vocabulary.end:
            return text.decode()
        assert matcher.consume_token(chosen)
        text += vocabulary.bytes[chosen]
    return None


def allowed_bytes(vocabulary: Vocabulary, ids: Sequence[int]) -> set[bytes]:
    return {vocabulary.bytes[id_] for id_ in ids}


def _next_of_tag(text: bytes, tags: Sequence[str]) -> bytes:
    """The byte that goes on with a tag whose beginning the text ends with."""
    for tag in map(str.encode, tags):
        for size in range(len(tag) - 1, 0, -1):
            if text.endswith(tag[:size]):
                return tag[size : size + 1]
    return b""


@pytest.mark.parametrize("has_tokens", [True, False], ids=["tokens", "texts"])
@pytest.mark.parametrize("name", FORMATS)
def test_what_a_grammar_allows_is_read_as_calls(name: str, has_tokens: bool, tmp_path: Path):
    written = FORMATS[name]
    vocabulary = Vocabulary(tuple(written.markers) if has_tokens else (), tmp_path)
    tags = (*written.markers, "\n</parameter>", "</parameter>", "</arg_value>")
    num_read = 0
    for seed in seeds(5):
        random = Random(seed)
        use = ToolUse(TOOLS, Choosing.REQUIRED, is_parallel=random.random() < 0.5)
        grammar = answer_grammar(vocabulary.special_token, calls=written, use=use)
        if (text := walk(random, grammar, vocabulary, tags)) is None:
            continue
        reader = AnswerReader(None, written, TOOLS)
        deltas = joined([delta for character in text for delta in reader.feed(character)] + reader.finish())
        calls = calls_of(deltas)
        assert calls, (seed, text)
        assert use.is_parallel or len(calls) == 1, (seed, text)
        assert content_of(deltas) == "", (seed, text)
        for called, arguments in calls:
            jsonschema.validate(arguments, SCHEMAS[called])
        num_read += 1
    assert num_read >= 2


# --- answers that may call tools, and need not ------------------------------------------------------------------------

CALLS: list[Call] = [
    ("weather", {"city": "Paris", "unit": "C", "days": 3}),
    ("weather", {"city": "S\u00e3o Paulo"}),
    ("set.all", {"inner": {"deep": [1, 2], "on": True}, "level": 0.5, "is-on": False}),
    ("now", {}),
]
SAID = ("", "Let me see.", 'a < b, [x], {y} and "z"', "line\n\nline")


def grammar_of(vocabulary: Vocabulary, written: CallFormat | Harmony, choosing: Choosing) -> str:
    use = ToolUse(TOOLS, choosing)
    if isinstance(written, Harmony):
        return channel_grammar(vocabulary.special_token, written, use=use)
    return answer_grammar(vocabulary.special_token, calls=written, use=use)


def all_read(written: CallFormat | Harmony, text: str) -> list[Delta]:
    reader = ChannelReader() if isinstance(written, Harmony) else AnswerReader(None, written, TOOLS)
    return joined([delta for character in text for delta in reader.feed(character)] + reader.finish())


def accepts(vocabulary: Vocabulary, grammar: str, text: str) -> str | None:
    """Follow a text token by token. None: it is accepted; else where it is not."""
    matcher = LLMatcher(vocabulary.ll, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = vocabulary.encode(text)
    for number, token in enumerate(tokens):
        if not matcher.consume_token(token):
            return text[: len(vocabulary.decode(tokens[:number]))] + " <-- here"
    return None if matcher.is_accepting() else "it is not at an end"


def answers_with(written: CallFormat | Harmony, said: str, call: Call) -> tuple[str, str]:
    """An answer as models write it, and what of it is content: formats that begin an answer have nothing before."""
    if isinstance(written, Harmony):
        before = f"<|channel|>commentary<|message|>{said}<|end|><|start|>assistant" if said else ""
        return before + written.write([call]).removesuffix("<|call|>"), said
    text = written.write([call])
    if written.openings:
        return text, ""
    return said + text, said


@pytest.mark.parametrize("has_tokens", [True, False], ids=["tokens", "texts"])
@pytest.mark.parametrize("name", ALL)
def test_an_answer_that_may_call_is_accepted_with_and_without_a_call(name: str, has_tokens: bool, tmp_path: Path):
    written = ALL[name]
    vocabulary = Vocabulary(tuple(written.markers) if has_tokens else (), tmp_path)
    grammar = grammar_of(vocabulary, written, Choosing.AUTO)
    for said in SAID:
        if said:
            assert accepts(vocabulary, grammar, said) is None, said
            deltas = all_read(written, said)
            assert (content_of(deltas), names_of(deltas)) == (said, []), said
        for call in CALLS:
            text, content = answers_with(written, said, call)
            assert accepts(vocabulary, grammar, text) is None, text
            deltas = all_read(written, text)
            assert (content_of(deltas), calls_of(deltas)) == (content, [call]), text


@pytest.mark.parametrize("has_tokens", [True, False], ids=["tokens", "texts"])
@pytest.mark.parametrize("choosing", [Choosing.AUTO, Choosing.REQUIRED])
def test_channels_that_are_allowed_are_read(choosing: Choosing, has_tokens: bool, tmp_path: Path):
    vocabulary = Vocabulary(tuple(HARMONY.markers) if has_tokens else (), tmp_path)
    grammar, num_calls = grammar_of(vocabulary, HARMONY, choosing), 0
    for seed in seeds(12):
        if (text := walk(Random(seed), grammar, vocabulary, HARMONY.markers)) is None:
            continue
        deltas = all_read(HARMONY, text)
        calls = calls_of(deltas)
        assert len(calls) == 1 or choosing is Choosing.AUTO, (seed, text)
        for called, arguments in calls:
            jsonschema.validate(arguments, SCHEMAS[called])
        num_calls += len(calls)
    assert num_calls >= (2 if choosing is Choosing.REQUIRED else 0)
