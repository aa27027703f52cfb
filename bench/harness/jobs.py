"""Runs jobs in processes of their own or on a Ray cluster, shows how far they are, and groups what comes of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mesh.jobs.runner import JobPlace, running
from mesh.show.progress import working

Job = TypeVar("Job")
Answer = TypeVar("Answer")
Key = TypeVar("Key")


def run_jobs(work: Callable[[Job], Answer], jobs: Sequence[Job], place: JobPlace, what: str = "runs") -> list[Answer]:
    """The answers in the order of the jobs. With one process, this one works.

    ``work`` must be a function of an importable module, which ``__main__`` of a package is not.
    The first error ends all jobs.
    """
    answers: dict[int, Answer] = {}
    place = place if place.ray else JobPlace(min(place.num_processes, len(jobs)))
    with working(what, len(jobs)) as shown, running(work, place) as runner:
        for index, answer in runner.run(jobs):
            answers[index] = answer
            shown.advance()
    return [answers[index] for index in range(len(jobs))]


def grouped(answers: Mapping[Job, Answer], key: Callable[[Job], Key]) -> dict[Key, list[Answer]]:
    """The answers by what their jobs have in common, such as all but the seed."""
    found: dict[Key, list[Answer]] = {}
    for job, answer in answers.items():
        found.setdefault(key(job), []).append(answer)
    return found


def turned(contenders: Sequence[Job], by: int) -> list[Job]:
    """Begin with another contender each time, so that what drifts falls on all."""
    first = by % len(contenders)
    return [*contenders[first:], *contenders[:first]]
