import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.models.stop_strings import Checked, StopChecker


def run(checker: StopChecker, pieces: list[str]) -> Checked:
    shown = ""
    for piece in pieces:
        checked = checker.feed(piece)
        shown += checked.text
        if checked.stop is not None:
            return Checked(shown, checked.stop)
    return Checked(shown + checker.finish())


def test_what_may_become_a_stop_string_is_held_back() -> None:
    checker = StopChecker(["</answer>"])
    assert checker.feed("yes </ans") == Checked("yes ")
    assert checker.feed("werk") == Checked("</answerk")
    assert checker.feed(" <") == Checked(" ")
    assert checker.finish() == "<"
    assert checker.finish() == ""


def test_the_text_ends_before_the_stop_string_or_behind_it() -> None:
    assert run(StopChecker(["STOP"]), ["a ST", "OP b"]) == Checked("a ", "STOP")
    assert run(StopChecker(["STOP"], include_stop=True), ["a ST", "OP b"]) == Checked("a STOP", "STOP")


@pytest.mark.parametrize("pieces", [["xabcd"], list("xabcd"), ["xab", "cd"]])
def test_the_stop_string_that_is_complete_first_counts(pieces: list[str]) -> None:
    assert run(StopChecker(["abcd", "bc"]), pieces) == Checked("xa", "bc")
    assert run(StopChecker(["c", "abc"]), pieces) == Checked("x", "abc")


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_the_outcome_does_not_depend_on_the_pieces(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = run(StopChecker(stops), [text])
    assert run(StopChecker(stops), pieces) == whole
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    if whole.stop is None:
        assert (whole.text, ends) == (text, [])
    else:
        assert whole.text + whole.stop == text[: ends[0]]
