"""Tasks of a Ray cluster, each of which is one job."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from mesh.cluster.ray.session import AUTO, import_ray, last_started, require_answer
from mesh.errors import CommandError
from mesh.jobs.attempts import ATTEMPTS, WorkerDiedError

Job = TypeVar("Job")
Answer = TypeVar("Answer")

NAMESPACE: Final = "meshserve-jobs"
AHEAD: Final = 2  # jobs for each processor of the cluster that Ray is given at a time


class RayRunner(Generic[Job, Answer]):
    """Has each job done by a task with one processor. Nodes have this package and its files at the same paths.

    Ray tries a task again whose worker or node dies, once.
    """

    def __init__(self, work: Callable[[Job], Answer], address: str) -> None:
        self._ray = ray = _connected(address)
        self._work = ray.put(work)
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_do)
        self._running: dict[Any, int] = {}  # index of each task's job

    def __enter__(self) -> "RayRunner[Job, Answer]":
        return self

    def __exit__(self, *error: object) -> None:
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running = {}
        self._ray.shutdown()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        waiting = deque(range(len(jobs)))
        most = AHEAD * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        while waiting or self._running:
            while waiting and len(self._running) < most:
                index = waiting.popleft()
                self._running[self._task.remote(self._work, jobs[index])] = index
            for task in self._ray.wait(list(self._running))[0]:
                index = self._running.pop(task)
                yield index, self._answer_of(task, index)

    def _answer_of(self, task: Any, index: int) -> Any:
        ray = self._ray
        try:
            return ray.get(task)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            why = str(error).strip().partition("\n")[0]
            raise WorkerDiedError(f"job {index}: its worker on Ray died, and so did the second one: {why}") from None
        except ray.exceptions.RayError as error:
            why = str(error).strip().partition("\n")[0]
            raise CommandError(f"job {index}: Ray could not do it: {why}") from None


def _do(work: Callable[[Any], Any], job: Any) -> Any:
    return work(job)


def _connected(address: str) -> Any:
    """Return the library, connected to the cluster there. Raise `CommandError` if none answers."""
    ray = import_ray()
    address = (last_started() or AUTO) if address == AUTO else address
    require_answer(address, "--on ray")
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise CommandError(
            f"--on ray: no cluster answers at {address!r}: {why}; `ray start --head` starts one"
        ) from None
    return ray
