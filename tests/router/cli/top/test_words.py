"""Numbers that fit into their columns."""

import pytest

from router.cli.top.words import brief_time, clean, share, spark


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0 ms"), (0.0851, "85 ms"), (-0.02, "-20 ms"), (0.9996, "1.0 s"), (12.34, "12.3 s")],
)
def test_times_are_short(seconds, text):
    assert brief_time(seconds) == text


@pytest.mark.parametrize("seconds", [-99.94, 99.96, 5999.0, 6000.0, 99_999.0])
def test_long_times_fit_too(seconds):
    assert len(brief_time(seconds)) <= 7


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "-"), (1, 3, "33%"), (1, 1, "100%"), (99_999, 100_000, "99.9%"), (199, 200, "99.5%")],
)
def test_a_share_is_no_whole_if_something_lacks(part, whole, text):
    assert share(part, whole) == text


def test_bars_grow_with_shares():
    assert spark([None, 0.0, 0.5, 1.0]) == " ▁▅█"


def test_text_is_one_harmless_line():
    assert clean("a\x1b]0;title\x07\nb" + "c" * 1000).startswith("a�]0;title� bc")
    assert len(clean("c" * 1000)) == 200
