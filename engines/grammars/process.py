"""The client of a grammar process: starts it, hands it jobs, tells whose job it died of.

One thread at a time uses a client. Nothing here waits but `receive`, and that no longer than it is told to.
"""

import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from engines.grammars.protocol import (
    MAX_PACKET_BYTES,
    Answer,
    Bad,
    Check,
    Died,
    Follow,
    Job,
    Packet,
    decode_packet,
    encode,
)

WALL_S = 10.0  # without an answer to the oldest job: the process is stopped, or starved; both begin anew

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer in a prepared model's ``folder``, and the tokens that end an answer."""

    folder: Path
    size: int
    eos_token_ids: tuple[int, ...]


class GrammarProcess:
    """Answers come in the order of jobs. A `Died` is never among them: the job that it befell is answered `Bad`."""

    def __init__(self, vocabulary: Vocabulary, wall_s: float = WALL_S) -> None:
        self._vocabulary = vocabulary
        self._wall_s = wall_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._unanswered: deque[Job] = deque()
        self._unsent: deque[bytes] = deque()
        self._heard_at = 0.0

    def __repr__(self) -> str:
        pid = self._process and self._process.pid
        return f"<GrammarProcess {pid} {len(self._unanswered)} jobs, {len(self._unsent)} not sent>"

    def __del__(self) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def put(self, job: Job) -> None:
        """Have a job done; `receive` answers it, unless more of it is to come."""
        if not self._unanswered:
            self._heard_at = time.monotonic()
        self._unanswered.append(job)
        self._unsent.append(encode(job))
        self._send()

    def receive(self, timeout_s: float) -> Answer | None:
        """The next answer; None: not within ``timeout_s``, or nothing is to be answered."""
        deadline = time.monotonic() + timeout_s
        while self._unanswered:
            self._send()
            left_s = max(0.0, deadline - time.monotonic())
            answer = self._read(left_s) if self._is_readable(left_s) else self._overdue()
            if answer is not None:
                return answer
            if time.monotonic() >= deadline:
                return None
        return None

    def close(self) -> None:
        """End the process. Its jobs are forgotten."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection = self._process = None
        self._unanswered.clear()
        self._unsent.clear()

    # --- the socket ---------------------------------------------------------------------------------------------------

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        model = self._vocabulary
        arguments = (str(theirs.fileno()), str(model.folder), str(model.size), *map(str, model.eos_token_ids))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engines.grammars.worker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._connection = ours
        return ours

    def _send(self) -> None:
        """As many jobs as the socket takes."""
        while self._unsent:
            connection = self._connection or self._start()
            try:
                connection.send(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self._begin_anew()
                return
            self._unsent.popleft()

    def _is_readable(self, timeout_s: float) -> bool:
        if self._connection is None:
            return False
        return bool(select.select([self._connection], [], [], timeout_s)[0])

    def _read(self, timeout_s: float) -> Answer | None:
        assert self._connection is not None
        try:
            packet = self._connection.recv(MAX_PACKET_BYTES)
        except OSError:
            packet = b""
        if not packet:
            return self._begin_anew()
        self._heard_at = time.monotonic()
        return self._settle(decode_packet(packet))

    def _settle(self, answer: Packet) -> Answer | None:
        """Whose answer it is; None: of a job that was settled when its child died. Parts of jobs have no answers."""
        if not isinstance(answer, Died) and answer.job < self._unanswered[0].job:
            return None
        while self._unanswered:
            job = self._unanswered.popleft()
            if not _is_answered(job):
                continue
            if isinstance(answer, Died):
                return Bad(job.job, f"the grammar cannot be followed: {answer.reason}")
            if job.job == answer.job:
                return answer
        return None

    def _overdue(self) -> Answer | None:
        if time.monotonic() - self._heard_at < self._wall_s:
            return None
        log.warning("a grammar process does not answer", process=repr(self))
        return self._begin_anew()

    def _begin_anew(self) -> Answer:
        """The whole process is gone, or as good as gone. The oldest job is taken for the reason."""
        job = next((job for job in self._unanswered if _is_answered(job)), self._unanswered[0])
        later = [other for other in self._unanswered if other.job > job.job]
        self.close()
        for other in later:
            self._unanswered.append(other)
            self._unsent.append(encode(other))
        self._heard_at = time.monotonic()
        return Bad(job.job, f"the grammar cannot be followed: no answer within {self._wall_s:g} s")


def _is_answered(job: Job) -> bool:
    return isinstance(job, Check) or job.is_last


def jobs_of(first_job: int, request: str, grammar: str, tokens: Sequence[int], start: int, most: int) -> list[Follow]:
    """One request's tokens from ``start`` on, as jobs of at most ``most`` tokens, the last of which is answered."""
    starts = range(start, max(len(tokens), start + 1), most)
    return [
        Follow(
            job=first_job + index,
            request=request,
            grammar=grammar if begin == 0 else "",
            start=begin,
            tokens=list(tokens[begin : begin + most]),
            is_last=index == len(starts) - 1,
        )
        for index, begin in enumerate(starts)
    ]
