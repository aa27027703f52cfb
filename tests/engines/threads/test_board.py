"""Engines of a host see in files which of them work."""

import os

import pytest

from engines.threads.board import open_board
from mesh.topology.parse import load

TEXT = """
[services.s]
model = "m"
[engines.e]
count = 2
{threads}
[engines.f]
role = "prefill"
[gateways.g]
"""


@pytest.fixture
def topology(tmp_path):
    def write(threads):
        (tmp_path / "t.toml").write_text(TEXT.format(threads=threads))
        return load(tmp_path / "t.toml")

    return write


@pytest.fixture
def boards(topology, tmp_path, monkeypatch):
    """Those of two engines of three, of which the third was never started."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    mesh = topology("max_threads = 3")
    return [open_board(mesh, mesh.engine(name), tmp_path / "run") for name in ("e-0", "e-1")]


def test_an_engine_has_more_threads_while_others_rest(boards):
    first, second = boards
    first.rest()
    second.rest()
    first.work()
    assert first.num_threads() == 3
    second.work()
    assert (first.num_threads(), second.num_threads()) == (2, 1)
    first.rest()
    assert second.num_threads() == 3
    assert "working: ['e-1']" in repr(first)


def test_an_engine_works_until_it_says_that_it_is_ready(boards):
    first, second = boards
    first.rest()
    assert first.num_threads() == 2
    second.rest()
    assert first.num_threads() == 3


def test_what_an_earlier_process_of_the_engine_said_counts_until_the_next_is_there(boards, topology, tmp_path):
    first, _ = boards
    first.rest()
    mesh = topology("max_threads = 3")
    again = open_board(mesh, mesh.engine("e-1"), tmp_path / "run")
    assert first.num_threads() == 2
    again.rest()
    assert first.num_threads() == 3


def test_there_is_no_board_where_nobody_may_have_more(topology, tmp_path):
    mesh = topology("")
    assert open_board(mesh, mesh.engine("e-0"), tmp_path / "run") is None
    assert not (tmp_path / "run").exists()
