"""`--plot` and `--html`."""

import argparse
import importlib.util

import pytest

from mesh.errors import UserError
from mesh.show.output import Showing, add_show
from mesh.show.pages import Page
from mesh.show.picture import Picture
from tests.mesh.show.looking import look_at_page, words_in_drawing
from tests.mesh.show.samples import CURVES


def showing(*arguments, **options):
    parser = argparse.ArgumentParser()
    add_show(parser, "things")
    return Showing.of(parser.parse_args(arguments), **options)


def page():
    return Page("found", "", [Picture("things", [CURVES])])


def test_both_files_are_written(tmp_path, capsys):
    showing("--plot", str(tmp_path / "a.svg"), "--html", str(tmp_path / "a.html")).put(page)
    assert "mean" in words_in_drawing(tmp_path / "a.svg")
    assert look_at_page(tmp_path / "a.html").counts["svg"] == 1
    printed = capsys.readouterr()
    assert printed.out == ""  # it may be for programs
    assert "a.svg" in printed.err


def test_a_pipe_gets_no_chart_and_nothing_is_made(capsys):
    showing().put(lambda: pytest.fail("made for nobody"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("is_for_programs", "lines"), [(False, 12), (True, 0)])
def test_a_terminal_gets_a_chart_unless_json_was_asked_for(monkeypatch, capsys, is_for_programs, lines):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    showing(is_for_programs=is_for_programs).put(page)
    assert len(capsys.readouterr().out.splitlines()) == lines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--plot", "{tmp}/a.gif"), "--plot: {tmp}/a.gif: call it .svg or .png"),
        (("--plot", "{tmp}/none/a.svg"), "--plot: there is no folder {tmp}/none"),
        (("--html", "{tmp}"), "--html: {tmp} is a folder"),
    ],
)
def test_a_file_that_cannot_be_made_is_refused_before_the_work(tmp_path, arguments, words):
    with pytest.raises(UserError) as error:
        showing(*(one.format(tmp=tmp_path) for one in arguments))
    assert words.format(tmp=tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("option", ["--plot", "--html"])
def test_missing_matplotlib_is_one_line(monkeypatch, tmp_path, option):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        showing(option, str(tmp_path / "a.svg"))
    assert str(error.value).startswith(f"{option}: needs matplotlib")
    assert "\n" not in str(error.value)
