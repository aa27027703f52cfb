"""Pages in one file."""

import importlib.util

from mesh.show.pages import Page, PageCell, PageTable, page_text, write_page
from mesh.show.picture import Picture
from tests.mesh.show.looking import LookedAt, look_at_page
from tests.mesh.show.samples import HOSTILE, KINDS, hostile


def page(words="some", pictures=()):
    table = PageTable(words, [words, words], [[words, PageCell(words, "better")]])
    return Page(words, words, pictures, [("1.5", words)], [table], [words])


def test_a_page_is_whole_and_needs_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    write_page(path, page(pictures=[Picture("one", list(KINDS.values())), Picture("two", list(KINDS.values()))]))
    seen = look_at_page(path)
    assert seen.counts["svg"] == 2
    assert (seen.counts["h1"], seen.counts["table"], seen.counts["dl"]) == (1, 1, 1)
    assert "promise: 3 ms" in seen.text


def test_whatever_it_tells_is_escaped(tmp_path):
    path = tmp_path / "page.html"
    write_page(path, page(HOSTILE, [hostile()]))
    seen = look_at_page(path)
    assert seen.words.count(HOSTILE) > 10
    assert "\x1b" not in path.read_text()


def test_without_matplotlib_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    seen = LookedAt(page_text(page(pictures=[hostile()])))
    assert "svg" not in seen.counts
    assert "meshserve[bench]" in seen.text
