"""Long runs, and where their figures come from."""

import gc
import json
import weakref
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pytest

from bench.harness.files import UNKNOWN, commit_of, origin_here
from bench.harness.long_runs import INTERRUPTED, Keeping, LongRuns, told
from mesh.jobs.runner import JobPlace


@dataclass(frozen=True)
class Doubled:
    value: int


def test_runs_that_were_interrupted_go_on(tmp_path, capsys):
    done = []

    def double(case):
        done.append(case)
        if case == 3 and done.count(3) == 1:
            raise KeyboardInterrupt
        return Doubled(2 * case)

    runs = LongRuns(double, Doubled, lambda case: 60.0 * case)
    with pytest.raises(SystemExit, match=str(INTERRUPTED)):
        runs.run([1, 2, 3], JobPlace(), tmp_path, "doubled")
    assert runs.run([1, 2, 3], JobPlace(), tmp_path, "doubled") == {1: Doubled(2), 2: Doubled(4), 3: Doubled(6)}
    assert done == [1, 2, 3, 3]
    assert len(json.loads((tmp_path / "doubled.json").read_text())["results"]) == 3
    said = capsys.readouterr().out
    assert "3 runs: about 6 min with 1 at a time" in said
    assert "interrupted: the same command goes on after 2 of 3 runs" in said
    assert "3 runs, 2 of them done before: about 3 min" in said


class Cycle:
    def __init__(self):
        self.me = self


def test_what_a_run_leaves_in_cycles_is_freed_with_it(tmp_path):
    """Whatever collects garbage, and when: here nothing else does."""
    left = []

    def work(case):
        left.append(weakref.ref(Cycle()))
        return Doubled(case)

    gc.disable()
    try:
        Keeping(tmp_path, work, Doubled)(1)
    finally:
        gc.enable()
    assert left[0]() is None


@dataclass(frozen=True)
class Numbered:
    number: int
    data: Path | None = None


class Doubling:
    def __init__(self):
        self.done = []

    def __call__(self, case):
        self.done.append(case)
        return Doubled(2 * case.number)


def test_a_case_is_run_once_and_another_one_is_another(tmp_path):
    work, cases = Doubling(), [Numbered(1), Numbered(2), Numbered(1), Numbered(1, Path("data"))]
    keeping = Keeping(tmp_path / "runs", work, Doubled)
    assert list(map(keeping, cases)) == [Doubled(2), Doubled(4), Doubled(2), Doubled(2)]
    assert work.done == [Numbered(1), Numbered(2), Numbered(1, Path("data"))]
    assert Keeping(tmp_path / "other", work, Doubled)(Numbered(1)) == Doubled(2)
    assert len(work.done) == 4


def test_what_was_half_written_is_no_result(tmp_path):
    work = Doubling()
    keeping = Keeping(tmp_path, work, Doubled)
    keeping(Numbered(3))
    keeping.path(Numbered(3)).rename(tmp_path / "half.123")
    assert keeping(Numbered(3)) == Doubled(6)
    assert len(work.done) == 2


def test_a_result_that_has_no_end_is_kept(tmp_path):
    for _ in range(2):
        assert Keeping(tmp_path, lambda _: inf, float)(Numbered(1)) == inf


def test_the_time_is_that_of_all_processes():
    assert told(8, 8, 960.0, JobPlace(4)) == "8 runs: about 4 min with 4 at a time"
    assert told(8, 8, 960.0, JobPlace(16)) == "8 runs: about 2 min with 8 at a time"
    assert told(8, 0, 0.0, JobPlace(4)) == "8 runs, 8 of them done before"
    assert told(8, 8, 960.0, JobPlace(ray="auto")) == "8 runs: about 16 min of one core on Ray"


def test_figures_name_their_commit_and_machine(tmp_path):
    origin = origin_here()
    assert origin.num_cores >= 1
    assert origin.command.startswith("python -m ")
    assert commit_of(tmp_path) == UNKNOWN
