"""Processes of this machine that do one job after the other."""

import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic, NoReturn, TypeVar

from mesh.errors import CommandError
from mesh.jobs.attempts import ATTEMPTS, WorkerDiedError

Job = TypeVar("Job")
Answer = TypeVar("Answer")

END_S: Final = 5.0  # for a process to end that is told to


@dataclass(frozen=True, slots=True)
class _Answered:
    value: Any


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


@dataclass(eq=False, slots=True)
class _Worker:
    process: BaseProcess
    pipe: "Connection[Any, Any]"
    index: int = 0  # of its job


class ProcessRunner(Generic[Job, Answer]):
    """Starts up to ``num_processes`` when there are jobs for them; each keeps what ``work`` has loaded.

    A process that dies is replaced, and its job tried again once.
    """

    def __init__(self, work: Callable[[Job], Answer], num_processes: int) -> None:
        self._work = work
        self._num_processes = num_processes
        self._context = get_context("spawn")
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def __enter__(self) -> "ProcessRunner[Job, Answer]":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in (*self._idle, *self._busy):
            worker.pipe.close()
            worker.process.terminate()
        for worker in (*self._idle, *self._busy):
            worker.process.join(END_S)
        self._idle, self._busy = [], []

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        waiting, num_deaths = deque(range(len(jobs))), [0] * len(jobs)
        while waiting or self._busy:
            while waiting and len(self._busy) < self._num_processes:
                self._begin(waiting.popleft(), jobs)
            for worker in self._ready():
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    self._lose(worker, num_deaths)
                    waiting.appendleft(worker.index)
                    continue
                self._busy.remove(worker)
                self._idle.append(worker)
                yield worker.index, _value_of(answer)

    def _begin(self, index: int, jobs: Sequence[Job]) -> None:
        worker = self._idle.pop() if self._idle else self._start()
        worker.index = index
        self._busy.append(worker)
        with suppress(OSError):  # it is dead, and reading from it says so
            worker.pipe.send(jobs[index])

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs,), name="jobs", daemon=True)
        process.start()
        theirs.close()
        with suppress(OSError):  # likewise
            ours.send(self._work)
        return _Worker(process, ours)

    def _ready(self) -> list[_Worker]:
        readable = wait([worker.pipe for worker in self._busy])
        return [worker for worker in self._busy if worker.pipe in readable]

    def _lose(self, worker: _Worker, num_deaths: list[int]) -> None:
        self._busy.remove(worker)
        worker.pipe.close()
        worker.process.join(END_S)
        num_deaths[worker.index] += 1
        if num_deaths[worker.index] == ATTEMPTS:
            _give_up(worker)


def _give_up(worker: _Worker) -> NoReturn:
    code = worker.process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; is there too little memory for so many at a time?" if code == -signal.SIGKILL else ""
    raise WorkerDiedError(f"job {worker.index}: its process died ({how}), and so did the one that tried it again{hint}")


def _value_of(answer: _Answered | _Raised) -> Any:
    if isinstance(answer, _Raised):
        raise answer.error
    return answer.value


def serve(pipe: "Connection[Any, Any]") -> None:
    """Do the jobs that come, until nobody is there to hear of them. Ctrl-C is for whoever asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work = pipe.recv()
        while True:
            pipe.send(_answer_to(work, pipe.recv()))
    except (EOFError, OSError):
        return


def _answer_to(work: Callable[[Any], Any], job: Any) -> _Answered | _Raised:
    try:
        return _Answered(work(job))
    except Exception as error:  # whoever asked raises it
        return _Raised(_portable(error))


def _portable(error: Exception) -> Exception:
    """The error, if it arrives elsewhere as what it is; else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return CommandError(f"{type(error).__name__}: {error}")
    return error
