import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.models.text.stop_strings import Checked, StopChecker, StopStrings
from tests.work import num_lines_run


def checker_of(*stops: str) -> StopChecker:
    return StopChecker(StopStrings(stops))


def run(checker: StopChecker, pieces: list[str]) -> Checked:
    shown = ""
    for piece in pieces:
        checked = checker.feed(piece)
        shown += checked.text
        if checked.stop is not None:
            return Checked(shown, checked.stop)
    return Checked(shown + checker.finish())


def expected(stops: list[str], text: str) -> Checked:
    """What may be shown of a text by definition, before it is finished."""
    for end in range(len(text) + 1):
        found = max((stop for stop in stops if text[:end].endswith(stop)), key=len, default=None)
        if found is not None:
            return Checked(text[: end - len(found)], found)
    beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
    return Checked(next(text[:cut] for cut in range(len(text) + 1) if text[cut:] in beginnings))


def test_what_may_become_a_stop_string_is_held_back():
    checker = checker_of("</answer>")
    assert checker.feed("yes </ans") == Checked("yes ")
    assert checker.feed("werk") == Checked("</answerk")
    assert checker.feed(" <") == Checked(" ")
    assert checker.finish() == "<"
    assert checker.finish() == ""


def test_the_text_ends_before_the_stop_string():
    assert run(checker_of("STOP"), ["a ST", "OP b"]) == Checked("a ", "STOP")


@pytest.mark.parametrize("pieces", [["xabcd"], list("xabcd"), ["xab", "cd"]])
def test_the_stop_string_that_is_complete_first_counts(pieces: list[str]):
    assert run(checker_of("abcd", "bc"), pieces) == Checked("xa", "bc")
    assert run(checker_of("c", "abc"), pieces) == Checked("x", "abc")


def test_choices_of_a_call_follow_the_same_strings_each_for_itself():
    stops = StopStrings(["ab"])
    first, second = StopChecker(stops), StopChecker(stops)
    assert first.feed("xa") == Checked("x")
    assert second.feed("b") == Checked("b")
    assert first.feed("b") == Checked("", "ab")


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=6), st.lists(st.text("abc", max_size=5)))
def test_each_piece_shows_what_no_stop_string_can_take_back(stops: list[str], pieces: list[str]):
    checker, shown, text = checker_of(*stops), "", ""
    for piece in pieces:
        text += piece
        checked = checker.feed(piece)
        shown += checked.text
        assert Checked(shown, checked.stop) == expected(stops, text)
        if checked.stop is not None:
            assert checker.finish() == ""
            return
    assert shown + checker.finish() == text


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=6), st.text("ab", max_size=30))
def test_a_stop_string_is_found_however_the_others_overlap_with_it(stops: list[str], text: str):
    assert checker_of(*stops).feed(text) == expected(stops, text)


@pytest.mark.parametrize(
    "stops_of",
    [
        lambda length: ["a" * length + "b"],
        lambda length: ["b" + "a" * length],
        lambda length: ["a" * (length // 16 + number) + "b" for number in range(16)],
        lambda length: ["ab" * (length // 2) + "c", "ba" * (length // 2) + "c"],
    ],
)
def test_long_stop_strings_cost_no_more_a_character_than_short_ones(stops_of: Any):
    text = "a" * 2000 + "ab" * 1000

    def num_lines(length: int) -> int:
        stops = StopStrings(stops_of(length))
        checker = StopChecker(stops)
        return num_lines_run(lambda: [checker.feed(character) for character in text])

    assert num_lines(480) < 2 * num_lines(32)
    assert num_lines_run(lambda: StopStrings(stops_of(480))) < 2 * 15 * num_lines_run(lambda: StopStrings(stops_of(32)))


def test_long_stop_strings_take_memory_in_proportion():
    tracemalloc.start()
    try:
        stops = StopStrings(["ab" * 2000, *("c" * length for length in range(1, 40))])
        num_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert repr(stops) == "<StopStrings states=4040>"
    assert num_bytes < 64 * 4040  # much of it is what the interpreter keeps for later tuples
