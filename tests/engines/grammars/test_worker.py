"""In which order a grammar process does its jobs, and whom a death befalls."""

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from engines.grammars import worker
from engines.grammars.errors import GrammarError
from engines.grammars.protocol import MAX_PACKET_BYTES, Bad, Check, FollowTokens, Job, Mask, decode_packet, encode
from engines.grammars.worker import Running, _Child, _drain

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def follow(job: int, expected_s: float, request: str = "", *, is_last: bool = True) -> FollowTokens:
    return FollowTokens(job, request or f"r{job}", "", 0, [], is_last, expected_s)


class Recording:
    """Does nothing, and says what was running meanwhile."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.seen: list[tuple[int, int]] = []

    def do(self, job: Job) -> Mask | None:
        self.seen.append((job.job, self.running.job))
        return Mask(job.job, b"") if isinstance(job, Check) or job.is_last else None


def test_of_the_jobs_that_wait_the_cheapest_is_next_and_parts_keep_their_order(ends: Ends):
    ours, theirs = ends
    running = Running()
    follower = Recording(running)
    jobs = [follow(3, 0.2), follow(4, 0.01, "long", is_last=False), follow(5, 0.01, "long"), follow(6, 0.001)]
    for job in jobs:
        ours.send(encode(job))
    child = Thread(target=_Child(theirs, follower, running).run)  # type: ignore[arg-type]
    child.start()
    answers = [decode_packet(ours.recv(MAX_PACKET_BYTES)) for _ in range(3)]
    ours.shutdown(socket.SHUT_RDWR)
    child.join(5.0)
    assert [answer.job for answer in answers if isinstance(answer, Mask)] == [6, 5, 3]
    assert follower.seen == [(6, 6), (4, 4), (5, 5), (3, 3)]
    assert running.job == -1


def test_a_tokenizer_that_cannot_follow_answers_each_job_once(ends: Ends):
    ours, theirs = ends
    for job in (follow(0, 0.0, "r", is_last=False), follow(1, 0.0, "r"), Check(2, "")):
        ours.send(encode(job))
    child = Thread(target=_Child(theirs, GrammarError("no tokenizer"), Running()).run)
    child.start()
    assert [decode_packet(ours.recv(MAX_PACKET_BYTES)) for _ in range(2)] == [
        Bad(1, "no tokenizer"),
        Bad(2, "no tokenizer"),
    ]
    ours.shutdown(socket.SHUT_RDWR)
    child.join(5.0)


def test_what_a_child_left_is_thrown_away(ends: Ends):
    ours, theirs = ends
    for job in range(5):
        ours.send(encode(follow(job, 0.0)))
    _drain(theirs)
    with pytest.raises(BlockingIOError):
        theirs.recv(1, socket.MSG_DONTWAIT)


def test_a_child_that_is_never_idle_is_renewed_when_it_is_old_and_has_grown(monkeypatch):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = _Child(theirs, GrammarError("none"), Running())
    assert not child._is_old()
    monkeypatch.setattr(worker, "OLD_S", -1.0)
    assert not child._is_old()
    monkeypatch.setattr(worker, "IDLE_WORN_BYTES", -1)
    assert child._is_old()
    ours.close()
    theirs.close()
