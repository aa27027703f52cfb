"""How commands read numbers from their arguments."""

from argparse import ArgumentTypeError

import pytest

from mesh.cli.numbers import count, counts, positive, seconds_up_to

DAY = seconds_up_to(86400.0, "a day")


def test_numbers_that_fit():
    assert (positive("0.5"), count("3"), counts("8,1,8"), DAY("0"), DAY("86400")) == (0.5, 3, [1, 8], 0.0, 86400.0)


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "much", ""])
def test_what_is_not_positive_is_refused(text: str):
    with pytest.raises(ArgumentTypeError, match="does not fit; use a number greater than 0"):
        positive(text)


@pytest.mark.parametrize("text", ["-1", "86401", "inf", "nan", "long"])
def test_seconds_are_bounded(text: str):
    with pytest.raises(ArgumentTypeError, match="use seconds from 0 to 86400, a day"):
        DAY(text)


@pytest.mark.parametrize("text", ["0", "1.5", "-3", "many", ""])
def test_what_is_no_count_is_refused(text: str):
    with pytest.raises(ArgumentTypeError, match="use a whole number of at least 1"):
        counts(f"2,{text}")
