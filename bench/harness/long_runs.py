"""Runs that take long together: their time is told first, and what was done is not done again after an interruption."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from bench.harness.files import commit_of, write_results
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console
from mesh.jobs.runner import JobPlace
from simulation.garbage import leaving_nothing_behind

INTERRUPTED = 130  # exit status: 128 and the number of the signal

Case = TypeVar("Case")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LongRuns(Generic[Case, Result]):
    """``work`` on cases, whose results are of ``kind``. ``about_s``: the seconds that a case takes, roughly."""

    work: Callable[[Case], Result]
    kind: type[Result]
    about_s: Callable[[Case], float]

    def run(self, cases: Sequence[Case], place: JobPlace, out: Path, name: str) -> dict[Case, Result]:
        """Return the result of each case. They are kept below ``out``, by commit, and written as ``name``. Ctrl-C ends
        the program with a line.
        """
        keeping = Keeping(out / "runs" / commit_of(Path.cwd()) / self.work.__name__, self.work, self.kind)
        left = [case for case in cases if not keeping.path(case).exists()]
        said = told(len(cases), len(left), sum(map(self.about_s, left)), place)
        make_console().print(said, highlight=False)
        try:
            results = dict(zip(cases, run_jobs(keeping, cases, place), strict=True))
        except KeyboardInterrupt:
            num_done = sum(keeping.path(case).exists() for case in cases)
            make_console().print(f"interrupted: the same command goes on after {num_done} of {len(cases)} runs")
            raise SystemExit(INTERRUPTED) from None
        write_results(out / f"{name}.json", results)
        return results


@dataclass(frozen=True, slots=True)
class Keeping(Generic[Case, Result]):
    """Does ``work``, or reads what came of it before. Processes may share the folder.

    What is kept says nothing of the program: empty the folder when that has changed.
    """

    folder: Path
    work: Callable[[Case], Result]
    kind: type[Result]

    def path(self, case: Case) -> Path:
        """Where the result of this very case is kept."""
        return self.folder / sha256(msgspec.json.encode(case, enc_hook=str)).hexdigest()[:24]

    def __call__(self, case: Case) -> Result:
        path = self.path(case)
        if path.exists():
            return msgspec.msgpack.decode(path.read_bytes(), type=self.kind)
        with leaving_nothing_behind():  # a simulation that is over is full of cycles: thirty of them took 3 GB
            result = self.work(case)
        self.folder.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(msgspec.msgpack.encode(result))
        written.replace(path)  # whole or not at all
        return result


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
