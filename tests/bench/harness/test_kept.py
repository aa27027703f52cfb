from dataclasses import dataclass
from pathlib import Path

from bench.harness.kept import kept


@dataclass(frozen=True)
class Case:
    number: int
    data: Path | None = None


@dataclass(frozen=True)
class Result:
    double: int


class Work:
    def __init__(self):
        self.done = []

    def __call__(self, case):
        self.done.append(case)
        return Result(2 * case.number)


def test_a_case_is_run_once_and_another_one_is_another(tmp_path):
    work, cases = Work(), [Case(1), Case(2), Case(1), Case(1, Path("data"))]
    assert [kept(tmp_path / "runs", case, work, Result) for case in cases] == [
        Result(2),
        Result(4),
        Result(2),
        Result(2),
    ]
    assert work.done == [Case(1), Case(2), Case(1, Path("data"))]
    assert kept(tmp_path / "other", Case(1), work, Result) == Result(2)
    assert len(work.done) == 4


def test_what_was_half_written_is_no_result(tmp_path):
    kept(tmp_path, Case(3), Work(), Result)
    [file] = tmp_path.iterdir()
    file.rename(file.with_suffix(".123"))
    work = Work()
    assert kept(tmp_path, Case(3), work, Result) == Result(6)
    assert work.done
