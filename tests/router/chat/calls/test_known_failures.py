"""What goes wrong in other servers, by their issues: calls lost or doubled, depending on how answers come in pieces."""

import pytest

from router.chat.calls.call_format import Call
from router.chat.calls.formats import FORMATS
from router.chat.tools import Tool
from tests.router.chat.calls.answers import Answer, calls_of, content_of, names_of, read

PARIS: Call = ("get_weather", {"city": "Paris"})
EMPTY: Call = ("now", {})
TOOLS = [Tool("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}}), Tool("now")]
EACH = pytest.mark.parametrize("name", FORMATS)


def answer(text: str) -> Answer:
    return Answer(text, "", "", [], TOOLS)


def marked(name: str, calls: list[Call]) -> str:
    """Calls that may follow text."""
    written = FORMATS[name]
    return (written.triggers[0] if written.openings else "") + written.write(calls)


@EACH
def test_an_answer_that_comes_in_one_piece_keeps_content_and_calls(name: str):
    """vllm-project/vllm#47907, #55082, #48347: the call, or its arguments, were lost."""
    text = "Sure, let me check." + marked(name, [PARIS])
    deltas = read(answer(text), FORMATS[name], [text])
    assert (content_of(deltas), calls_of(deltas)) == ("Sure, let me check.", [PARIS])


@EACH
def test_calls_after_one_without_arguments_keep_theirs(name: str):
    """vllm-project/vllm#47901: arguments after an empty call were dropped."""
    text = FORMATS[name].write([EMPTY, PARIS, EMPTY, PARIS])
    for size in (1, 8, len(text)):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert calls_of(read(answer(text), FORMATS[name], pieces)) == [EMPTY, PARIS, EMPTY, PARIS]


@EACH
def test_arguments_are_told_once(name: str):
    """vllm-project/vllm#51697: the end of the stream told them again."""
    text = FORMATS[name].write([PARIS])
    deltas = read(answer(text), FORMATS[name], [text[:-3], text[-3:]])
    assert (names_of(deltas), calls_of(deltas)) == (["get_weather"], [PARIS])


@EACH
def test_a_marker_that_comes_in_parts_is_no_content(name: str):
    """vllm-project/vllm#57490, #51701: parts of markers were shown, and the call lost."""
    text = "Hm. " + marked(name, [PARIS])
    for size in (1, 2, 3, 5, 8, 13):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        deltas = read(answer(text), FORMATS[name], pieces)
        assert (content_of(deltas), calls_of(deltas)) == ("Hm.", [PARIS])


@pytest.mark.parametrize("name", ["hermes", "qwen_xml", "mistral_apart", "deepseek"])
def test_text_after_calls_is_content(name: str):
    """vllm-project/vllm#56263: text after a call was dropped where the answer did not stream."""
    text = FORMATS[name].write([PARIS]) + "\nDone."
    for pieces in ([text], list(text)):
        deltas = read(answer(text), FORMATS[name], pieces)
        assert (content_of(deltas), calls_of(deltas)) == ("Done.", [PARIS])


def test_an_opener_that_is_cut_off_is_content_either_way():
    """vllm-project/vllm#47137: streams and whole answers differed."""
    text = "See <tool_ca"
    for pieces in ([text], list(text)):
        assert content_of(read(answer(text), FORMATS["hermes"], pieces)) == text


def test_a_trigger_that_is_only_mentioned_hides_no_call():
    text = "Write <tool_call> tags: " + FORMATS["hermes"].write([PARIS])
    for pieces in ([text], list(text)):
        deltas = read(answer(text), FORMATS["hermes"], pieces)
        assert (content_of(deltas), calls_of(deltas)) == ("Write <tool_call> tags:", [PARIS])


def test_values_of_one_call_do_not_reach_into_the_next():
    """sgl-project/sglang#31915: parameters of the second call were grafted onto the first."""
    text = FORMATS["qwen_xml"].write([PARIS, ("get_weather", {"city": "Rome"})])
    assert calls_of(read(answer(text), FORMATS["qwen_xml"], [text])) == [PARIS, ("get_weather", {"city": "Rome"})]
