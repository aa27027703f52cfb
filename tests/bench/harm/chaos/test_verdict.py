"""What counts as failed, wrong, late and recovered."""

from functools import partial

import pytest

from bench.harm.chaos.verdict import ScenarioRow, Tally, num_wrong, recovery_s
from bench.harm.clients import NO_ANSWER, Ask, Client

EXPECTED = tuple("abcdef")
ASK = Ask((1, 2), 6, 1)


def visit(pieces="abcdef", *, status=200, finish="length", times=None, port=1, ended_at=9.0, **more):
    made = Client("r", port, ASK, is_connected=True, status=status, finish=finish, ended_at=ended_at, **more)
    made.pieces = list(pieces)
    made.arrivals = [(at, count) for count, at in enumerate(times or [float(n) for n in range(len(pieces))], 1)]
    return made


def tally(*visits, **options):
    made = Tally()
    for one in visits:
        made.take(one, EXPECTED, **options)
    return made


@pytest.mark.parametrize(
    ("got", "whole", "wrong"),
    [
        ("abcdef", True, 0),
        ("abcde", True, 1),  # one is missing at the end
        ("abcde", False, 0),  # it broke off
        ("abccdef", True, 4),  # one came twice: all that follow are off
        ("abdef", True, 4),
        ("abcdefg", False, 1),
        ("", False, 0),
        ("abXdef", False, 1),
    ],
)
def test_pieces_that_differ_are_wrong(got, whole, wrong):
    assert num_wrong(list(got), EXPECTED, is_whole=whole) == wrong


def test_a_whole_answer_is_neither_failed_nor_wrong():
    made = tally(visit(times=[0.0, 0.5, 2.0, 2.1, 2.2, 2.3]))
    assert (made.requests, made.failed, made.wrong, made.worst_gap_s, made.problems) == (1, 0, 0, 1.5, [])


@pytest.mark.parametrize(
    ("one", "count"),
    [
        (visit("abc", finish=None, problem="gone"), "failed"),
        (visit("abc", finish=None, has_left=True), "cancelled"),
        (visit("", status=503, finish=None), "refused"),
        (visit("", status=429, finish=None), "refused"),
        (visit("", status=500, finish=None), "failed"),
        (visit("", status=None, finish=None), "failed"),  # it never ended
        (visit("abc", finish=None, problem="503 in mid-stream"), "failed"),
        (visit("", status=NO_ANSWER, finish=None, problem="reset"), "failed"),
    ],
)
def test_each_end_is_counted_once(one, count):
    made = tally(one)
    counts = {"failed": made.failed, "cancelled": made.cancelled, "refused": made.refused}
    assert counts == {**dict.fromkeys(counts, 0), count: 1}
    assert bool(made.problems) == (count == "failed")


def test_nobody_listened_is_a_refusal():
    one = visit("", status=NO_ANSWER, finish=None)
    one.is_connected = False
    assert tally(one).refused == 1


def test_a_killed_gateway_takes_its_streams_along():
    made = tally(visit("abc", finish=None, problem="gone"), is_excused=True)
    assert (made.failed, made.lost_with_gateway, made.worst_gap_s) == (0, 1, None)
    assert tally(visit("abX", finish=None), is_excused=True).wrong == 1


def test_silence_until_a_stream_breaks_is_a_gap():
    assert tally(visit("ab", finish=None, times=[0.0, 1.0], ended_at=9.0)).worst_gap_s == 8.0


def test_slow_readers_have_no_gaps():
    assert tally(visit(times=[0.0, 50.0, 51.0, 52.0, 53.0, 54.0]), is_timed=False).worst_gap_s is None


def test_recovery_is_the_last_stream_to_go_on_and_the_first_new_answer():
    streams = [visit(times=[0.0, 1.0, 2.5, 3.0, 4.0, 5.0]), visit(times=[0.0, 1.0, 4.0, 5.0, 6.0, 7.0])]
    probe = visit(ended_at=3.0)
    probe.sent_at = 2.0
    assert recovery_s(2.0, streams, [probe], {1}) == 2.0
    assert recovery_s(2.0, streams[:1], [probe], {1}) == 1.0
    assert recovery_s(2.0, streams, [probe], {1, 2}) is None


def test_an_answer_begun_before_the_fault_proves_nothing():
    probe = visit(ended_at=3.0)
    probe.sent_at = 1.0
    assert recovery_s(2.0, [], [probe], {1}) is None


def test_a_row_passes_when_all_targets_are_met():
    row = partial(ScenarioRow, name="x")
    assert row(tally=Tally(requests=1, worst_gap_s=2.9)).is_passed
    assert not row(tally=Tally(requests=1, worst_gap_s=3.0)).is_passed
    assert row(tally=Tally(requests=1, worst_gap_s=8.0), gap_limit_s=9.0).is_passed
    assert not row(tally=Tally(problems=["it leaks"])).is_passed
    assert row(tally=Tally(lost_with_gateway=3, refused=2, cancelled=1)).is_passed
