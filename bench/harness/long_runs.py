"""Runs that take long together: their time is told first, and what was done is not done again after an interruption."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bench.harness.jobs import run_jobs
from bench.harness.kept import is_kept, kept
from bench.harness.origin import commit_of
from bench.harness.tables import make_console
from mesh.jobs.runner import JobPlace

Case = TypeVar("Case")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LongRuns(Generic[Case, Result]):
    """``work`` on cases, whose results are of ``kind``. ``about_s``: the seconds that a case takes, roughly."""

    work: Callable[[Case], Result]
    kind: type[Result]
    about_s: Callable[[Case], float]

    def run(self, cases: Sequence[Case], place: JobPlace, out: Path) -> dict[Case, Result]:
        """Return the result of each case. They are kept below ``out``, apart for each commit."""
        folder = out / "runs" / commit_of(Path.cwd())
        left = [case for case in cases if not is_kept(folder, case)]
        console = make_console()
        console.print(told(len(cases), len(left), sum(map(self.about_s, left)), place), highlight=False)
        keeping = Keeping(folder, self.work, self.kind)
        return dict(zip(cases, run_jobs(keeping, cases, place), strict=True))


@dataclass(frozen=True, slots=True)
class Keeping(Generic[Case, Result]):
    """Does ``work``, or reads what came of it before."""

    folder: Path
    work: Callable[[Case], Result]
    kind: type[Result]

    def __call__(self, case: Case) -> Result:
        return kept(self.folder, case, self.work, self.kind)


def told(num_cases: int, num_left: int, seconds: float, place: JobPlace) -> str:
    """How long it takes, in a line."""
    done = f", {num_cases - num_left} of them done before" if num_left < num_cases else ""
    if not num_left:
        return f"{num_cases} runs{done}"
    if place.ray:
        return f"{num_cases} runs{done}: about {_minutes(seconds)} of one core on Ray"
    at_a_time = min(place.num_processes, num_left)
    return f"{num_cases} runs{done}: about {_minutes(seconds / at_a_time)} with {at_a_time} at a time"


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"
