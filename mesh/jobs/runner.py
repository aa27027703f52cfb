"""Runs jobs at a `JobPlace`: in this process, in others of this machine, or on a Ray cluster."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")
J_contra = TypeVar("J_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)

RAY: Final = "ray"


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where jobs run: in so many processes of this machine, or on the Ray cluster at ``ray``."""

    num_processes: int = 1
    ray: str | None = None  # "auto", or host:port

    @property
    def is_here(self) -> bool:
        """Say whether this process does the work itself."""
        return self.ray is None and self.num_processes <= 1


class Runner(Protocol[J_contra, A_co]):
    """Has workers until it is closed."""

    def run(self, jobs: Sequence[J_contra]) -> Iterator[tuple[int, A_co]]:
        """Yield the index of each job with its answer, in the order in which they end.

        Raise what a job raised, or `WorkerDiedError`.
        """


def parse_place(text: str) -> JobPlace:
    """Parse ``ray`` or ``ray:HOST:PORT``. Raise `ValueError`, saying what would be right."""
    name, colon, address = text.partition(":")
    host, _, port = address.rpartition(":")
    if name != RAY or (colon and not (host and port.isdecimal() and len(port) <= 5)):
        raise ValueError(f"{text!r} does not fit; write it like {RAY} or {RAY}:10.0.0.1:6379")
    return JobPlace(ray=address or "auto")


@contextmanager
def running(work: Callable[[Job], Answer], place: JobPlace) -> Iterator[Runner[Job, Answer]]:
    """Do jobs there, until the context ends. Whoever leaves it early does not wait for jobs that still run.

    ``work`` goes to each worker once. It must be picklable: not a function of ``__main__``, nor a lambda.
    """
    if place.is_here:
        yield HereRunner(work)
    elif place.ray is not None:
        from mesh.jobs.on_ray import RayRunner  # Ray is an extra

        with RayRunner(work, place.ray) as ray_runner:
            yield ray_runner
    else:
        from mesh.jobs.processes import ProcessRunner

        with ProcessRunner(work, place.num_processes) as runner:
            yield runner


class HereRunner(Generic[Job, Answer]):
    """Does one job after the other in this process."""

    def __init__(self, work: Callable[[Job], Answer]) -> None:
        self._work = work

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        for index, job in enumerate(jobs):
            yield index, self._work(job)
