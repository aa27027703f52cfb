"""Answers of gpt-oss: however one is cut into pieces, the same is read of it."""

import json
from random import Random

import pytest

from router.chat.calls.call_format import Call
from router.chat.calls.formats import HARMONY
from router.chat.calls.harmony import NEXT
from router.chat.channel_reader import MAX_HEAD, ChannelReader
from router.chat.deltas import Delta, joined
from tests.router.chat.calls.answers import TEXTS, calls_of, content_of, cut, names_of, random_call, reasoning_of
from tests.seeds import seeds

ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"


def read(pieces: list[str]) -> list[Delta]:
    reader = ChannelReader()
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    return joined(deltas + reader.finish())


def random_answer(random: Random) -> tuple[str, str, str, list[Call]]:
    """The text, and what is to be read of it: content, reasoning and calls."""
    messages, content, reasoning, calls = list[str](), list[str](), list[str](), list[Call]()
    for _ in range(random.randint(1, 5)):
        said = random.choice(TEXTS[1:8]) + " and more"
        match random.randint(0, 4):
            case 0 | 1:
                messages.append(f"{ANALYSIS}{said}<|end|>")
                reasoning.append(said)
            case 2:
                messages.append(f"{random.choice((FINAL, FINAL.replace('final', 'commentary')))}{said}<|end|>")
                content.append(said)
            case 3:
                name, arguments = random_call(random, may_mark=False)
                text = json.dumps(arguments, ensure_ascii=random.random() < 0.5)
                messages.append(f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{text}<|call|>")
                calls.append((name, arguments))
            case 4:
                calls.append(random_call(random, may_mark=False))
                messages.append(HARMONY.write(calls[-1:]))
    text = NEXT.join(messages)
    if random.random() < 0.5:
        text = text.removesuffix("<|call|>").removesuffix("<|end|>")  # the engine ends there
    return text, "\n\n".join(content), "\n\n".join(reasoning), calls


def test_what_is_written_is_read_in_every_cut():
    for seed in seeds(60):
        random = Random(seed)
        text, content, reasoning, calls = random_answer(random)
        whole = read([text])
        assert (content_of(whole), reasoning_of(whole), calls_of(whole)) == (content, reasoning, calls), (seed, text)
        assert read(list(text)) == whole, (seed, text)
        for place in range(0, len(text), 1 if seed < 3 else 7):
            assert read(cut(text, [place])) == whole, (seed, text, place)


def test_what_is_cut_off_shows_no_marker_and_no_head():
    for seed in seeds(20):
        text, content, reasoning, calls = random_answer(Random(seed))
        for end in range(len(text)):
            deltas = read([text[:end]])
            assert names_of(deltas) == [name for name, _ in calls][: len(names_of(deltas))], (seed, text[:end])
            shown = content_of(deltas)
            assert content.startswith(shown.partition("<")[0].rstrip()), (seed, text[:end])
            assert reasoning.startswith(reasoning_of(deltas).partition("<")[0].rstrip()), (seed, text[:end])


def test_garbage_is_read_without_fail_and_alike_in_every_cut():
    fragments = [
        *HARMONY.markers,
        "assistant",
        "to=",
        "functions.",
        "f",
        "analysis",
        "final",
        " ",
        "\n",
        "{",
        "}",
        "é",
        "<",
    ]
    for seed in seeds(150):
        random = Random(seed)
        text = "".join(random.choice(fragments) for _ in range(random.randint(1, 30)))
        assert read(list(text)) == read([text]), (seed, text)


@pytest.mark.parametrize("text", ["Hello <|world", "a\n\nb", "x" * 5000, "total=3", " <b>"])
def test_text_without_a_head_is_content(text: str):
    assert content_of(read([text])) == content_of(read(list(text))) == text


@pytest.mark.parametrize("name", ["analysis", "commentary"])
def test_messages_to_other_tools_are_reasoning(name: str):
    deltas = read([f"<|channel|>{name} to=python code<|message|>1 + 1<|call|>"])
    assert (reasoning_of(deltas), names_of(deltas), content_of(deltas)) == ("1 + 1", [], "")


def test_a_call_without_arguments_has_none():
    assert calls_of(read([f"{CALL}<|call|>"])) == [("get_weather", {})]
    assert calls_of(read([CALL])) == [("get_weather", {})]


def test_a_head_that_does_not_end_becomes_text():
    text = "<|channel|>" + "final" * MAX_HEAD
    assert content_of(read([text])) == content_of(read(list(text))) == text


def test_it_says_while_it_reasons():
    reader = ChannelReader()
    told = [(len(reader.feed(piece)), reader.is_reasoning) for piece in (ANALYSIS, "hm", "<|end|>", NEXT + FINAL, "Hi")]
    assert told == [(0, True), (1, True), (0, True), (0, False), (1, False)]
