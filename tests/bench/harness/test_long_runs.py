"""Long runs, and where their figures come from."""

from dataclasses import dataclass

import pytest

from bench.harness.long_runs import LongRuns, told
from bench.harness.origin import UNKNOWN, commit_of, origin_here
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
    with pytest.raises(KeyboardInterrupt):
        runs.run([1, 2, 3], JobPlace(), tmp_path)
    assert runs.run([1, 2, 3], JobPlace(), tmp_path) == {1: Doubled(2), 2: Doubled(4), 3: Doubled(6)}
    assert done == [1, 2, 3, 3]
    said = capsys.readouterr().out
    assert "3 runs: about 6 min with 1 at a time" in said
    assert "3 runs, 2 of them done before: about 3 min" in said


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
