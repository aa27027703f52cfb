"""What counts as recovered."""

from bench.harm.chaos.trial import recovery_s
from bench.harm.clients import Ask, Client


def visit(times=(), *, sent_at=0.0, ended_at=9.0):
    made = Client("r", 1, Ask((1, 2), 6, 1), sent_at=sent_at, status=200, finish="length", ended_at=ended_at)
    made.arrivals = list(times)
    return made


def test_recovery_is_the_last_stream_to_go_on_and_the_first_new_answer():
    streams = [visit([0.0, 1.0, 2.5, 3.0, 4.0]), visit([0.0, 1.0, 4.0, 5.0, 6.0])]
    probe = visit(sent_at=2.0, ended_at=3.0)
    assert recovery_s(2.0, streams, [probe], {1}) == 2.0
    assert recovery_s(2.0, streams[:1], [probe], {1}) == 1.0
    assert recovery_s(2.0, streams, [probe], {1, 2}) is None


def test_an_answer_begun_before_the_fault_proves_nothing():
    assert recovery_s(2.0, [], [visit(sent_at=1.0, ended_at=3.0)], {1}) is None
