"""However an answer is cut into pieces, the same is read of it."""

from random import Random

import pytest

from router.chat.answer_reader import MAX_BLANKS, MAX_HELD, AnswerReader
from router.chat.calls.formats import FORMATS
from tests.router.chat.calls import answers
from tests.router.chat.calls.answers import THINK, Answer, cut, random_answer, read
from tests.seeds import seeds

EACH = pytest.mark.parametrize("name", FORMATS)


@EACH
def test_what_is_written_is_read_in_every_cut(name: str):
    for seed in seeds(6):
        random, written, thinks = Random(seed), FORMATS[name], seed % 2 == 0
        answer = random_answer(random, written, thinks=thinks)
        whole = read(answer, written, [answer.text], thinks=thinks)
        assert answers.content_of(whole) == answer.content, (seed, answer.text)
        assert answers.reasoning_of(whole) == answer.reasoning, (seed, answer.text)
        assert answers.calls_of(whole) == answer.calls, (seed, answer.text)
        assert read(answer, written, list(answer.text), thinks=thinks) == whole, (seed, answer.text)
        places = random.sample(range(len(answer.text) + 1), min(len(answer.text), random.randint(1, 12)))
        assert read(answer, written, cut(answer.text, places), thinks=thinks) == whole, (seed, answer.text, places)
        if seed < 1:
            for place in range(len(answer.text)):
                pieces = cut(answer.text, [place])
                assert read(answer, written, pieces, thinks=thinks) == whole, (seed, answer.text, place)


@EACH
def test_what_is_cut_off_keeps_what_was_named(name: str):
    for seed in seeds(1):
        written = FORMATS[name]
        answer = random_answer(Random(seed), written)
        named = [call[0] for call in answer.calls]
        for end in range(len(answer.text)):
            deltas = read(answer, written, [answer.text[:end]])
            names = answers.names_of(deltas)
            assert names == named[: len(names)], (seed, answer.text[:end])
            if not names:
                assert answers.content_of(deltas) == answer.text[:end], (seed, answer.text[:end])


@EACH
def test_garbage_is_read_without_fail_and_alike_in_every_cut(name: str):
    written = FORMATS[name]
    fragments = [
        *written.triggers, *written.markers, *written.openings, "{", "}", "[", "]", '"', "'", "\\", ":", ",", "=", "(",
        ")", "<", ">", " ", "\n", "name", '"name"', '"arguments": {', "a", "é", "🦜", "</think>", "<think>", "```",
        '{"name": "f", "arguments": {"a": 1}}', "f(a=1)",
    ]  # fmt: skip
    for seed in seeds(20):
        random = Random(seed)
        text = "".join(random.choice(fragments) for _ in range(random.randint(1, 40)))
        answer = Answer(text, "", "", [], [])
        thinks = seed % 3 == 0
        whole = read(answer, written, [text], thinks=thinks)
        assert read(answer, written, list(text), thinks=thinks) == whole, (seed, text)
        if not thinks and not answers.names_of(whole):
            assert answers.content_of(whole) == text, (seed, text)


class CountingReader(AnswerReader):
    """Counts the characters that it looks at."""

    num_characters = 0
    most_held = 0

    def _step(self, text: str) -> str:
        self.num_characters += len(text)
        rest = super()._step(text)
        held = self._held if self._section is None else self._section._unnamed
        self.most_held = max(self.most_held, len(held))
        return rest


LENGTH = 8_000


def endless(name: str) -> dict[str, str]:
    written = FORMATS[name]
    start = written.triggers[0]
    return {
        "blanks": " " * LENGTH,
        "words": "word " * (LENGTH // 5),
        "triggers": start * (LENGTH // len(start)),
        "begun": start + " " * LENGTH,
        "strings": (start + '{"x": ["') * (LENGTH // (len(start) + 8)),
        "a call": written.write([("f", {"a": "x" * LENGTH})]),
    }


@pytest.mark.parametrize("name", ["hermes", "llama_json", "pythonic", "mistral_apart", "qwen_xml", "deepseek"])
def test_long_answers_take_linear_time_and_bounded_memory(name: str):
    for kind, text in endless(name).items():
        reader = CountingReader(THINK, FORMATS[name])
        for character in text:
            reader.feed(character)
        reader.finish()
        assert reader.num_characters < 2 * MAX_BLANKS * LENGTH, kind
        assert reader.most_held <= MAX_HELD + MAX_BLANKS, kind


def test_an_answer_of_200000_characters_is_read_one_by_one():
    text = FORMATS["hermes"].write([("f", {"a": "x" * 100_000})]) + "y" * 100_000
    reader = CountingReader(THINK, FORMATS["hermes"])
    deltas = [delta for character in text for delta in reader.feed(character)] + reader.finish()
    assert answers.calls_of(deltas) == [("f", {"a": "x" * 100_000})]
    assert reader.num_characters < 4 * len(text)


def test_what_never_becomes_a_call_is_held_up_to_a_bound():
    for text in ("<tool_call>" + " " * 200_000, '<tool_call>{"x": [' + "1," * 100_000):
        reader = CountingReader(None, FORMATS["hermes"])
        deltas = [delta for at in range(0, len(text), 100) for delta in reader.feed(text[at : at + 100])]
        assert answers.content_of(deltas + reader.finish()) == text
        assert reader.most_held <= MAX_HELD + 100


def test_blanks_beyond_a_bound_are_text():
    blanks = "\n" * (MAX_BLANKS + 10)
    answer = Answer(f"{blanks}<tool_call>", "", "", [("f", {})], [])
    text = blanks + FORMATS["hermes"].write(answer.calls)
    for pieces in ([text], list(text)):
        deltas = read(answer, FORMATS["hermes"], pieces)
        assert (answers.content_of(deltas), answers.calls_of(deltas)) == ("\n" * 10, answer.calls)
