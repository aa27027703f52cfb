"""What ``--help`` prints fits a terminal of 80 columns and says what a command does."""

import argparse
from collections.abc import Iterator

import pytest

from mesh.cli.entry import command_parser
from mesh.cli.parser import Parser


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_the_help_of_each_command_fits_eighty_columns():
    wide = {parser.prog: line for parser in _parsers() for line in parser.format_help().splitlines() if len(line) > 80}
    assert wide == {}


def test_each_command_and_each_argument_says_what_it_is_for():
    silent = [parser.prog for parser in _parsers() if not parser.description]
    mute = [
        f"{parser.prog} {action.option_strings or action.dest}"
        for parser in _parsers()
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction) and (action.help or "").partition("(default")[0] == ""
    ]
    assert (silent, mute) == ([], [])


def test_no_argument_leaves_out_what_it_is():
    """``--threads N  of each engine``: of each engine, what?"""
    said = [(parser.prog, action.help or "") for parser in _parsers() for action in parser._actions]
    assert [one for one in said if one[1].partition(" ")[0] in ("of", "that", "even", "likewise", "by", "from")] == []


def test_a_usage_of_several_forms_keeps_brackets_together():
    parser = Parser(prog="mesh x", usage=f"mesh x [--{'a' * 40} [--b N]] [--{'c' * 20} N] | mesh x --other")
    assert parser.format_usage().splitlines() == [
        f"usage: mesh x [--{'a' * 40} [--b N]]",
        f"           [--{'c' * 20} N]",
        "       mesh x --other",
    ]


def test_a_description_is_wrapped_and_an_example_is_not():
    parser = Parser(prog="mesh x", description="One\nsentence.", epilog=f"examples:\n  mesh x {'y' * 90}")
    lines = parser.format_help().splitlines()
    assert "One sentence." in lines
    assert lines[-2:] == ["examples:", f"  mesh x {'y' * 90}"]


def _parsers(parser: argparse.ArgumentParser | None = None) -> Iterator[argparse.ArgumentParser]:
    parser = parser or command_parser()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _parsers(command)
