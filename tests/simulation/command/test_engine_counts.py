import pytest

from simulation.command.engine_counts import UNCHANGED, counts_label, parse_counts


def test_numbers_of_engines_are_read_as_they_are_written():
    counts = parse_counts("prefill=2, decode=3")
    assert counts == {"prefill": 2, "decode": 3}
    assert parse_counts(counts_label(counts)) == counts
    assert (parse_counts(UNCHANGED), counts_label({})) == ({}, "")


@pytest.mark.parametrize(
    "text", ["", "prefill", "prefill=", "=2", "prefill=0", "a=1,a=2", "a=-1", "a=1_0", "a=9999999999"]
)
def test_what_is_no_number_of_engines_is_said(text):
    with pytest.raises(ValueError, match="write numbers of engines like prefill=2,decode=3, or unchanged"):
        parse_counts(text)
