"""``python -m engines.grammars.worker SOCKET FOLDER VOCABULARY EOS...``: the grammar process of one model.

It loads the tokenizer once and forks a child that does the jobs. The child ends when a job takes more CPU time than it
may (the kernel's profiling timer, whose signal nobody handles) or when llguidance gets no more memory. Then the parent
says so on the socket and forks the next one, in milliseconds. Both end when the other side of the socket is closed.
Of the jobs that wait, the one that is expected to take the least time is next: whose grammar is dear waits for others.
"""

import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from engines.grammars.errors import GrammarError
from engines.grammars.follower import Follower, load_tokenizer
from engines.grammars.protocol import (
    MAX_PACKET_BYTES,
    NOBODY,
    Answer,
    Bad,
    Check,
    Died,
    FollowTokens,
    Job,
    Mask,
    decode_job,
    encode,
)

CPU_S = 0.25  # of a job that compiles a grammar
CPU_S_GOING_ON = 0.1  # of another one
CPU_S_PER_TOKEN = 0.0002  # that is consumed, in addition
CPU_S_PER_DRAFT = 0.02  # likewise, with the mask after it
MEMORY_BYTES = 384 * 2**20  # of addresses, beyond what the tokenizer takes
WORN_BYTES = 96 * 2**20  # that a child has grown by, after which another one takes over
IDLE_S = 2.0  # after which one that has grown by less goes, too
OLD_S = 5.0  # likewise, of one that always has work
IDLE_WORN_BYTES = 24 * 2**20
EXIT_WORN = 75
MAX_WAITING = 4096  # jobs; more wait in the socket

_PAGE = resource.getpagesize()


def serve(connection: socket.socket, follower: Follower | GrammarError) -> None:
    """Fork one child after the other until the connection is closed."""
    running = Running()
    while True:
        running.job = NOBODY
        pid = os.fork()
        if pid == 0:
            _limit_memory()
            os._exit(_Child(connection, follower, running).run())
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        try:
            _drain(connection)
            connection.send(encode(Died(running.job, _why(status))))
        except OSError:
            return


class Running:
    """The number of the job that a child is doing, in memory that it shares with its parent."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    @property
    def job(self) -> int:
        return int.from_bytes(self._shared[:], signed=True)

    @job.setter
    def job(self, job: int) -> None:
        self._shared[:] = job.to_bytes(8, signed=True)


def _drain(connection: socket.socket) -> None:
    """The jobs that the last child left: the other side sends them again when it hears of its end."""
    for _ in range(MAX_WAITING):
        try:
            if not connection.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT):
                return
        except BlockingIOError:
            return


def _why(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return "it takes too much CPU time"
    return "it takes too much memory"


def _limit_memory() -> None:
    limit = _num_pages(0) * _PAGE + MEMORY_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _num_pages(which: int) -> int:
    """0: of addresses; 1: resident."""
    return int(Path("/proc/self/statm").read_bytes().split()[which])


class _Child:
    def __init__(self, connection: socket.socket, follower: Follower | GrammarError, running: Running) -> None:
        self._connection = connection
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)
        self._follower = follower
        self._running = running
        self._waiting: list[Job] = []
        self._num_pages = _num_pages(1)
        self._born_at = time.monotonic()

    def run(self) -> int:
        """Do jobs; answer the exit code."""
        try:
            while self._gather():
                if not self._waiting:
                    if self._has_grown_by(IDLE_WORN_BYTES):
                        return EXIT_WORN
                    continue
                job = min(self._waiting, key=_dearness)
                self._waiting.remove(job)
                answer = self._do(job)
                if answer is not None:
                    self._connection.send(encode(answer))
                if self._has_grown_by(WORN_BYTES) or (not self._waiting and self._is_old()):
                    return EXIT_WORN
        except OSError:
            return 0
        return 0

    def _is_old(self) -> bool:
        """Whether it has grown for a while, though it was never idle."""
        return time.monotonic() - self._born_at > OLD_S and self._has_grown_by(IDLE_WORN_BYTES)

    def _gather(self) -> bool:
        """Take the jobs that are there, or wait for one for a while; False: there will be none."""
        while len(self._waiting) < MAX_WAITING and self._readable.poll(0 if self._waiting else 1000 * IDLE_S):
            packet = self._connection.recv(MAX_PACKET_BYTES)
            if not packet:
                return False
            self._waiting.append(decode_job(packet))
        return True

    def _do(self, job: Job) -> Answer | None:
        if isinstance(self._follower, GrammarError):
            return Bad(job.job, str(self._follower)) if isinstance(job, Check) or job.is_last else None
        self._running.job = job.job
        signal.setitimer(signal.ITIMER_PROF, _limit_s(job))
        begun = time.process_time()
        try:
            answer = self._follower.do(job)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._running.job = NOBODY
        if isinstance(answer, Mask):
            return msgspec.structs.replace(answer, cpu_s=time.process_time() - begun)
        return answer

    def _has_grown_by(self, num_bytes: int) -> bool:
        return (_num_pages(1) - self._num_pages) * _PAGE > num_bytes


def _dearness(job: Job) -> float:
    return job.expected_s if isinstance(job, FollowTokens) else 0.0


def _limit_s(job: Job) -> float:
    """Return the limit of CPU time, in seconds."""
    if isinstance(job, Check):
        return CPU_S
    at_once_s = CPU_S_GOING_ON if job.start else CPU_S
    return at_once_s + CPU_S_PER_TOKEN * len(job.tokens) + CPU_S_PER_DRAFT * max(len(job.drafts), job.num_forced)


def main(arguments: list[str]) -> None:
    descriptor, folder, vocab_size, *eos_token_ids = arguments
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with the process that it works for, after its last job
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection = socket.socket(fileno=int(descriptor))
    follower: Follower | GrammarError
    try:
        text = (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")
        follower = Follower(load_tokenizer(text, int(vocab_size), [int(token) for token in eos_token_ids]))
        follower.do(Check(0, '{"grammars": [{"json_schema": {}}]}'))  # what all need is worked out before the fork
    except OSError as error:
        follower = GrammarError(f"this model's tokenizer cannot be read: {error.strerror}")
    except GrammarError as error:
        follower = error
    serve(connection, follower)


if __name__ == "__main__":
    main(sys.argv[1:])
