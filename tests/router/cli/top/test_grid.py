"""Tables that fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.cli.top.grid import Column, TableCell, TableLine, fitted, heading, matching, row, sorted_lines

COLUMNS = (Column("name", 6, 20, is_number=False), Column("few", 4, 6), Column("rest", 10, 30, is_number=False, rank=1))


def line(name: str, few: float | None = None, rest: str = "") -> TableLine:
    return TableLine(
        (name,),
        (TableCell(name, name), TableCell("-" if few is None else f"{few:.0f}", few), TableCell(rest, rest or None)),
    )


@given(st.lists(st.text(max_size=40), max_size=5), st.integers(6, 100))
def test_lines_are_never_wider_than_the_terminal(names, width):
    lines = [line(name.replace("\n", ""), 1.0, name) for name in names]
    widths = fitted(COLUMNS, lines, width)
    heads = heading(COLUMNS, widths, 1, is_descending=True)
    assert all(text.cell_len <= width for text in (heads, *(row(COLUMNS, widths, one) for one in lines)))


def test_what_matters_less_is_left_out_first():
    lines = [line("n" * 30, 1, "r" * 30)]
    assert fitted(COLUMNS, lines, 20) == [15, 4, 0]
    assert fitted(COLUMNS, lines, 30) == [14, 4, 10]
    assert fitted(COLUMNS, lines, 80) == [20, 4, 30]


def test_what_does_not_fit_is_marked():
    assert row(COLUMNS, [6, 4, 0], line("a-long-name", 12)).plain == "a-lon…   12"


@pytest.mark.parametrize(("is_descending", "order"), [(False, "acb"), (True, "cab")])
def test_what_is_not_known_comes_last(is_descending, order):
    lines = [line("a", 1), line("b"), line("c", 2)]
    assert "".join(one.key[0] for one in sorted_lines(lines, 1, is_descending=is_descending)) == order


def test_lines_match_that_have_all_words():
    lines = [line("decode-0", 1, "ready"), line("decode-1", 1, "silent"), line("prefill-0", 1, "silent")]
    assert [one.key[0] for one in matching(lines, "DEC sil")] == ["decode-1"]
    assert matching(lines, " ") == lines
