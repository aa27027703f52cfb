"""The plots of docs/results: each recorded figure has its plot, and each plot a page that shows it."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import figures
from bench.figures import DATA, IMAGES, ROOT

PANEL = {"kind": "bars", "title": "Requests/s", "x": ["a", "b"], "series": {"ours": [1.5, 2], "theirs": [1, 0.25]}}


def test_a_plot_has_the_values_it_was_given():
    words = set(re.findall(r">([^<>]+)</text>", figures.draw([PANEL])))
    assert {"Requests/s", "a", "b", "ours", "theirs", "1.5", "2", "1", "0.25"} <= words


def test_a_plot_has_colours_for_dark_pages_and_is_the_same_each_time():
    first, again = figures.draw([PANEL]), figures.draw([PANEL])
    assert first == again
    assert "prefers-color-scheme:dark" in first
    assert figures.INK not in ElementTree.tostring(_without_style(first), encoding="unicode")


def test_names_of_bars_are_told_once_for_panels_that_have_the_same():
    assert figures.draw([PANEL, PANEL]).count(">a</text>") == 1
    assert figures.draw([PANEL, {**PANEL, "x": ["c", "b"]}]).count(">b</text>") == 2


@pytest.mark.parametrize("source", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_figures_have_a_plot_that_a_page_shows(source: Path):
    panels = json.loads(source.read_text())["panels"]
    for panel in panels:
        assert all(len(values) == len(panel["x"]) for values in panel["series"].values())
    drawn = (IMAGES / f"{source.stem}.svg").read_text()
    assert all(panel["title"] in drawn for panel in panels), "python -m bench.figures draws it anew"
    pages = "".join(page.read_text() for page in (ROOT / "docs/results").glob("*.md"))
    assert f"images/results/{source.stem}.svg" in pages


def test_every_page_of_results_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = (page.name for page in (ROOT / "docs/results").glob("*.md"))
    assert [name for name in pages if f"results/{name}" not in navigation] == []


def _without_style(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    for style in root.findall("{http://www.w3.org/2000/svg}style"):
        root.remove(style)
    return root
