"""Charts on terminals of all sorts."""

import io
import re

import pytest
from rich.console import Console

from mesh.show.canvas import Canvas
from mesh.show.charts import number, print_chart
from mesh.show.picture import Bars, Curves, Lanes, LaneSpan, Limit, Picture, Series
from tests.mesh.show.samples import CELLS, KINDS, hostile

SORTS = {
    "colours": {"color_system": "standard", "force_terminal": True},
    "no colours": {"no_color": True, "force_terminal": True},
    "dumb": {"color_system": None},
}


def chart(picture, *, encoding="utf-8", width=80, **options):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    print_chart(Console(file=file, width=width, highlight=False, **options), picture)
    file.flush()
    return re.sub(r"\x1b\[[0-9;]*m", "", file.buffer.getvalue().decode(encoding))


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("kind", ["curves", "bars", "lanes"])
@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 80), ("latin-1", 80), ("ascii", 40), ("utf-8", 200)])
def test_a_chart_fits_and_says_its_names(kind, sort, encoding, width):
    written = chart(Picture("", [KINDS[kind]]), encoding=encoding, width=width, **SORTS[sort])
    assert max(map(len, written.splitlines())) <= min(width, 101)
    assert len(written.splitlines()) <= 16
    for name in {"curves": ("mean", "lost", "goal"), "bars": ("now", "then", "chat"), "lanes": ("queue", "gateway")}[
        kind
    ]:
        assert name in written


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_names_do_no_harm(encoding):
    for panel in hostile().panels:
        written = chart(Picture("", [panel]), encoding=encoding)
        assert "\x1b" not in written
        assert "\x07" not in written


def test_two_panels_are_beside_each_other_where_there_is_room():
    two = Picture("", [Curves(name, "ms", "", [Series("a", [0, 1], [0, 1])]) for name in ("left", "right")])
    assert "left" in chart(two).splitlines()[0]
    assert "right" in chart(two).splitlines()[0]
    assert "right" not in chart(two, width=60)


def test_curves_are_told_apart_without_colours():
    curves = [Series("up", [0, 1], [0, 1]), Series("down", [0, 1], [1, 0])]
    written = chart(Picture("", [Curves("two", "", "", curves)]), encoding="ascii")
    assert "* up   + down" in written
    assert {"*", "+"} <= set("".join(written.splitlines()[1:-2]))


def test_what_cannot_be_drawn_draws_nothing():
    assert chart(Picture("", [CELLS])) == ""
    chart(Picture("", [Curves("none", "", "", [])]))
    chart(Picture("", [Curves("gaps", "", "", [Series("a", [1, 2], [float("nan")] * 2)], is_log=True)]))
    chart(Picture("", [Bars("none", "", [], {})]))
    chart(Picture("", [Lanes("none", "", [], [])]))


def test_many_lanes_are_cut():
    lanes = [f"engine-{number}" for number in range(40)]
    written = chart(Picture("", [Lanes("many", "ms", lanes, [LaneSpan(lane, "busy", 0, 1) for lane in lanes])]))
    assert len(written.splitlines()) <= 16
    assert "and 28 more" in written


def test_lines_are_at_their_places():
    canvas = Canvas(10, 4, has_dots=False, is_ascii=True)
    canvas.line([(0.0, 0.0), (1.0, 1.0)], pen=0)
    canvas.guide(0.5, is_upright=True)
    rows = ["".join(letter for letter, _ in canvas.row(number)) for number in range(4)]
    assert rows[0].endswith("*")
    assert rows[3].startswith("*")
    assert all("|" in row or row[5] == "*" for row in rows)
    canvas.dot(2.0, 0.5, 0)
    canvas.guide(-1.0, is_upright=False)


def test_a_promise_is_drawn_even_where_nothing_came_near():
    limited = Curves("far", "ms", "%", [Series("a", [0, 1], [0, 100])], [Limit(50, "promise: 50 ms")])
    assert "┊ promise: 50 ms" in chart(Picture("", [limited]))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (1, "1"),
        (99.5, "99.5"),
        (12345, "12345"),
        (1e6, "1e6"),
        (0.00001, "1e-5"),
        (-0.25, "-0.25"),
        (float("nan"), "-"),
    ],
)
def test_numbers_are_short(value, words):
    assert number(value) == words
