"""Pictures as files."""

import importlib.util
import subprocess
import sys

import pytest

from mesh.errors import UserError
from mesh.show.figures import element_of, has_matplotlib, png_of, require_matplotlib, svg_of, write_picture
from mesh.show.palette import DARK, css
from mesh.show.picture import Curves, Limit, Picture, Series
from mesh.show.words import plain, shortened
from tests.mesh.show.looking import words_in_drawing
from tests.mesh.show.samples import CURVES, FORMULA, HOSTILE, KINDS, hostile


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("curves", {"mean", "measured", "promise: 3 ms", "goal", "found", "ms", "requests, %"}),
        ("bars", {"chat", "code", "now", "then", "91.2", "-", "goal"}),
        ("lanes", {"gateway", "decode-0", "queue", "decode", "first token", "moved", "promised TTFT"}),
        ("cells", {"engine-0", "now", "then", "chat", "nothing", "prefill"}),
    ],
)
def test_each_kind_of_panel_is_drawn_with_its_words(tmp_path, kind, words):
    path = tmp_path / "picture.svg"
    write_picture(path, Picture("the title", [KINDS[kind]]))
    assert {*words, "the title"} <= set(words_in_drawing(path))


def test_the_suffix_says_what_is_written(tmp_path):
    write_picture(tmp_path / "a.PNG", Picture("", [CURVES]))
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_the_same_picture_gives_the_same_bytes():
    picture = Picture("twice", list(KINDS.values()))
    assert svg_of(picture) == svg_of(picture)
    assert png_of(picture) == png_of(picture)


def test_hostile_names_stay_words(tmp_path):
    path = tmp_path / "picture.svg"
    write_picture(path, hostile())
    words = words_in_drawing(path)
    assert HOSTILE in words
    assert FORMULA in words
    assert "<script" not in path.read_text()
    assert not any(letter in path.read_text() for letter in "\x1b\x07")


def test_an_element_has_no_document_around_it_and_a_name():
    element = element_of(Picture("a < b", [CURVES]))
    assert element.startswith("<svg")
    assert 'role="img"><title>a &lt; b</title>' in element


def test_colours_follow_the_readers_paper():
    drawn = svg_of(Picture("", [CURVES]))
    assert f"<style>{css()}</style>" in drawn
    rest = drawn.replace(css(), "")
    assert not [color for color in DARK if color in rest]


@pytest.mark.parametrize("is_dark", [False, True])
def test_colours_stand_out_from_the_paper(is_dark):
    def luminance(color):
        parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    shown = DARK if is_dark else {color: color for color in DARK}
    paper = luminance(shown["#fdfdfe"])
    contrasts = {
        color: (max(paper, luminance(other)) + 0.05) / (min(paper, luminance(other)) + 0.05)
        for color, other in shown.items()
        if color not in {"#fdfdfe", "#d5d9e2"}  # the paper and its grid
    }
    assert {color: contrast for color, contrast in contrasts.items() if contrast < 3} == {}


def test_without_matplotlib_one_line_says_what_brings_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not has_matplotlib()
    with pytest.raises(UserError, match=r"^--plot: needs matplotlib, .* pip install 'meshserve\[bench\]' brings it$"):
        require_matplotlib("--plot")


def test_commands_load_matplotlib_only_to_draw():
    code = "import sys, mesh.show.output, mesh.show.pages; print(*{'matplotlib', 'jinja2', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == ""


def test_names_are_shortened_in_their_middle():
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abc", 5) == "abc"
    assert plain("a\tb\nc\x00") == "a b c\ufffd"


def test_a_promise_far_from_what_was_seen_is_still_there(tmp_path):
    far = Curves("far", "s", "ms", [Series("a", [0, 1], [1, 2])], [Limit(5000, "promise", False), Limit(90, "end")])
    write_picture(tmp_path / "a.svg", Picture("", [far, far]))
    assert {"promise", "end", "5000"} <= set(words_in_drawing(tmp_path / "a.svg"))
