"""``python -m engines.grammars.worker SOCKET FOLDER VOCABULARY EOS...``: the grammar process of one model.

It loads the tokenizer once and forks a child that does the jobs. The child ends when a job takes more CPU time than it
may (the kernel's profiling timer, whose signal nobody handles) or when llguidance gets no more memory. Then the parent
says so on the socket and forks the next one, in milliseconds. Both end when the other side of the socket is closed.
"""

import os
import resource
import signal
import socket
import sys
from pathlib import Path

from engines.grammars.errors import GrammarError
from engines.grammars.follower import Follower, load_tokenizer
from engines.grammars.protocol import (
    MAX_PACKET_BYTES,
    Answer,
    Bad,
    Check,
    Died,
    Follow,
    Job,
    decode_job,
    encode,
)

CPU_S = 0.5  # of one job
CPU_S_PER_TOKEN = 0.0002  # that is consumed, in addition
MEMORY_BYTES = 384 * 2**20  # of addresses, beyond what the tokenizer takes
WORN_BYTES = 96 * 2**20  # that a child has grown by, after which another one takes over
IDLE_S = 2.0  # after which one that has grown by less goes, too
IDLE_WORN_BYTES = 24 * 2**20
EXIT_WORN = 75

_PAGE = resource.getpagesize()


def serve(connection: socket.socket, follower: Follower | GrammarError) -> None:
    """Fork one child after the other until the connection is closed."""
    while True:
        pid = os.fork()
        if pid == 0:
            _limit_memory()
            os._exit(_Child(connection, follower).run())
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        if not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == EXIT_WORN):
            try:
                connection.send(encode(Died(_why(status))))
            except OSError:
                return


def _why(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return f"it takes more than {CPU_S:g} s of CPU time"
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
    def __init__(self, connection: socket.socket, follower: Follower | GrammarError) -> None:
        self._connection = connection
        self._follower = follower
        self._num_pages = _num_pages(1)

    def run(self) -> int:
        """Do jobs; answer the exit code."""
        while True:
            self._connection.settimeout(IDLE_S)
            try:
                packet = self._connection.recv(MAX_PACKET_BYTES)
            except TimeoutError:
                if self._has_grown_by(IDLE_WORN_BYTES):
                    return EXIT_WORN
                continue
            except OSError:
                return 0
            if not packet:
                return 0
            answer = self._do(decode_job(packet))
            self._connection.settimeout(None)
            try:
                if answer is not None:
                    self._connection.send(encode(answer))
            except OSError:
                return 0
            if self._has_grown_by(WORN_BYTES):
                return EXIT_WORN

    def _do(self, job: Job) -> Answer | None:
        if isinstance(self._follower, GrammarError):
            return Bad(job.job, str(self._follower)) if isinstance(job, Check) or job.is_last else None
        num_tokens = len(job.tokens) if isinstance(job, Follow) else 0
        signal.setitimer(signal.ITIMER_PROF, CPU_S + CPU_S_PER_TOKEN * num_tokens)
        try:
            return self._follower.do(job)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _has_grown_by(self, num_bytes: int) -> bool:
        return (_num_pages(1) - self._num_pages) * _PAGE > num_bytes


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
