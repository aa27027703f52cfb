"""The glossary can be looked up: its terms are in the order of the alphabet, and each stands there once."""

from itertools import dropwhile

from tests.docs.pages import DOCS


def test_terms_are_in_order_and_there_once():
    rows = dropwhile(lambda line: not line.startswith("|---"), (DOCS / "glossary.md").read_text().splitlines())
    terms = [row.split("|")[1].strip().lower() for row in rows][1:]
    assert terms == sorted(set(terms))


def test_each_term_has_one_line_with_a_meaning():
    rows = (DOCS / "glossary.md").read_text().split("|---|---|---|\n")[1].splitlines()
    assert [row for row in rows if row.count("|") != 4 or not row.split("|")[2].strip().endswith(".")] == []
