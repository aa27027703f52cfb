"""Runs jobs in processes of their own, and shows how far they are."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from mesh.show.progress import ShownProgress, working

Job = TypeVar("Job")
Answer = TypeVar("Answer")


def run_jobs(
    work: Callable[[Job], Answer], jobs: Sequence[Job], num_processes: int, what: str = "runs"
) -> list[Answer]:
    """The answers in the order of the jobs. With one process, this one works.

    ``work`` must be a function of an importable module, which ``__main__`` of a package is not.
    The first error ends all jobs.
    """
    with working(what, len(jobs)) as shown:
        if num_processes == 1:
            return [_advanced(shown, work(job)) for job in jobs]
        with ProcessPoolExecutor(min(num_processes, max(1, len(jobs))), mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(work, job) for job in jobs]
            try:
                for future in as_completed(futures):
                    _advanced(shown, future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]


def _advanced(shown: ShownProgress, answer: Answer) -> Answer:
    shown.advance()
    return answer


def turned(contenders: Sequence[Job], by: int) -> list[Job]:
    """Begin with another contender each time, so that what drifts falls on all."""
    first = by % len(contenders)
    return [*contenders[first:], *contenders[:first]]
