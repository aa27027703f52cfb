"""How far work has come."""

import io

import pytest

from mesh.show.progress import working
from mesh.show.words import duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_where_no_terminal_is_a_line_comes_every_ten_seconds():
    file, clock = io.StringIO(), Clock()
    with working("measuring", 100, stream=file, clock=clock) as shown:
        for _ in range(50):
            clock.now_s += 0.5
            shown.advance()
        shown.at(words="2 failed\n\x1b[31m")
        clock.now_s = 40.0
        shown.at(80)
    assert file.getvalue().splitlines() == [
        "measuring: 20%, 40 s left",
        "measuring: 40%, 30 s left",
        "measuring: 80%, 10 s left, 2 failed \ufffd[31m",
    ]


def test_short_work_and_unwanted_lines_are_silent():
    file, clock = io.StringIO(), Clock()
    with working("short", 10, stream=file, clock=clock) as shown:
        shown.advance(10)
    for options in ({"is_shown": False}, {"has_lines": False}):
        with working("long", 10, stream=file, clock=clock, **options) as shown:
            clock.now_s += 60
            shown.advance(3)
            shown.stage("longer")
    assert file.getvalue() == ""


def test_each_stage_is_told_at_once():
    file, clock = io.StringIO(), Clock()
    with working("tiny", stream=file, clock=clock) as shown:
        shown.stage("tiny: downloading")
        clock.now_s = 10
        shown.at(25, total=100)
        shown.stage("tiny: converting")
    assert file.getvalue().splitlines() == [
        "tiny: downloading",
        "tiny: downloading: 25%, 30 s left",
        "tiny: converting",
    ]


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with working("measuring [red]", 4, stream=file) as shown:
        shown.advance()
        shown.at(2, "2 failed")
        shown.stage("fitting")
        shown.at(1, total=2)
    assert "fitting" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")  # the last line is cleared


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (3661, "1 h 01 min")])
def test_durations_have_the_units_that_matter(seconds, words):
    assert duration(seconds) == words
