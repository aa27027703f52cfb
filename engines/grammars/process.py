"""The client of a grammar process: starts it, hands it jobs, tells whose job it died of.

One thread at a time uses a client. Nothing here waits but `receive`, and that no longer than it is told to.
"""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from engines.grammars.protocol import (
    MAX_PACKET_BYTES,
    Answer,
    Bad,
    Check,
    ChildLost,
    Died,
    FollowTokens,
    Job,
    Packet,
    decode_packet,
    encode,
)

WALL_S = 10.0  # without an answer: the process is stopped, or starved; both begin anew
MAX_LOSSES = 2  # of processes in turn, after which a job is given up

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer in a prepared model's ``folder``, and the tokens that end an answer."""

    folder: Path
    size: int
    eos_token_ids: tuple[int, ...]


class GrammarProcess:
    """Answers come in any order. A job of which the process's child died is answered `Bad`; others are done anew."""

    def __init__(self, vocabulary: Vocabulary, wall_s: float = WALL_S) -> None:
        self._vocabulary = vocabulary
        self._wall_s = wall_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._unanswered: dict[int, Job] = {}  # by number, the oldest first
        self._unsent: dict[int, None] = {}
        self._heard_at = 0.0
        self._num_losses = 0  # since something was heard

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
        self._unanswered[job.job] = job
        self._unsent[job.job] = None
        self._send()

    def drop(self, job: int) -> None:
        """Note that nobody wants the answer of this job and its parts. What is done of it already is not undone."""
        while (found := self._unanswered.pop(job, None)) is not None:
            self._unsent.pop(job, None)
            job -= 1
            before = self._unanswered.get(job)
            if before is None or _is_answered(before) or _is_of_another(before, found):
                return

    def receive(self, timeout_s: float) -> Answer | None:
        """The next answer; None: not within ``timeout_s``, or nothing is to be answered."""
        deadline = time.monotonic() + timeout_s
        while self._unanswered:
            self._send()
            left_s = max(0.0, deadline - time.monotonic())
            answer = self._read() if self._is_readable(left_s) else self._overdue()
            if answer is not None:
                return answer
            if time.monotonic() >= deadline:
                return None
        return None

    def close(self) -> None:
        """End the process. Its jobs are forgotten."""
        self._end()
        self._unanswered.clear()
        self._unsent.clear()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection = self._process = None

    # --- the socket ---------------------------------------------------------------------------------------------------

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        model = self._vocabulary
        arguments = (str(theirs.fileno()), str(model.folder), str(model.size), *map(str, model.eos_token_ids))
        with ExitStack() as unless_started, theirs:
            unless_started.enter_context(ours)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "engines.grammars.worker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            unless_started.pop_all()
        self._connection = ours
        return ours

    def _send(self) -> None:
        """As many jobs as the socket takes. What a process that is gone did not take is sent when that is heard."""
        try:
            connection = self._connection or (self._start() if self._unsent else None)
            while self._unsent and connection is not None:
                job = next(iter(self._unsent))
                connection.send(encode(self._unanswered[job]))
                del self._unsent[job]
        except OSError:
            return

    def _is_readable(self, timeout_s: float) -> bool:
        """Also true at the end of the process."""
        if self._connection is None:
            return True
        readable = select.poll()  # which takes any descriptor; select takes those below 1024
        readable.register(self._connection, select.POLLIN)
        return bool(readable.poll(1000 * timeout_s))

    def _read(self) -> Answer | None:
        try:
            packet = b"" if self._connection is None else self._connection.recv(MAX_PACKET_BYTES)
        except OSError:
            packet = b""
        if not packet:
            return self._begin_anew()
        self._heard_at, self._num_losses = time.monotonic(), 0
        return self._settle(decode_packet(packet))

    def _settle(self, packet: Packet) -> Answer | None:
        """The answer to a job; None: nobody waits for it."""
        if isinstance(packet, Died):
            self._unsent = dict.fromkeys(self._unanswered)
            job = self._end_of(packet.job)
            answer: Answer = Bad(job, f"the grammar cannot be followed: {packet.reason}", is_dear=True)
        else:
            job, answer = packet.job, packet
        if job not in self._unanswered:
            return None
        self.drop(job)
        return answer

    def _end_of(self, job: int) -> int:
        """The job that answers for this part."""
        while (part := self._unanswered.get(job)) is not None and not _is_answered(part):
            job += 1
        return job

    def _overdue(self) -> Answer | None:
        if time.monotonic() - self._heard_at < self._wall_s:
            return None
        log.warning("a grammar process does not answer", process=repr(self))
        return self._begin_anew()

    def _begin_anew(self) -> Answer | None:
        """The whole process is gone, or as good as gone, or could not be started. What it did is done anew, but not
        for ever."""
        self._end()
        self._heard_at = time.monotonic()
        self._num_losses += 1
        if self._num_losses < MAX_LOSSES:
            self._unsent = dict.fromkeys(self._unanswered)
            return None
        self._num_losses = 0
        job = self._end_of(next(iter(self._unanswered)))
        self.drop(job)
        self._unsent = dict.fromkeys(self._unanswered)
        return ChildLost(job)


def _is_of_another(job: Job, other: Job) -> bool:
    return isinstance(job, Check) or isinstance(other, Check) or job.request != other.request


def _is_answered(job: Job) -> bool:
    return isinstance(job, Check) or job.is_last


def jobs_of(
    first_job: int, request: str, grammar: str, tokens: Sequence[int], start: int, most: int, expected_s: float
) -> list[FollowTokens]:
    """One request's tokens from ``start`` on, as jobs of at most ``most`` tokens, the last of which is answered."""
    starts = range(start, max(len(tokens), start + 1), most)
    return [
        FollowTokens(
            job=first_job + index,
            request=request,
            grammar=grammar if begin == 0 else "",
            start=begin,
            tokens=list(tokens[begin : begin + most]),
            is_last=index == len(starts) - 1,
            expected_s=expected_s,
        )
        for index, begin in enumerate(starts)
    ]
