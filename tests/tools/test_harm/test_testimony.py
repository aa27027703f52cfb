"""What counts as failed, wrong and silent, and in which window."""

import pytest

from tests.tools.harm.clients import NO_ANSWER, Ask, Client
from tests.tools.harm.testimony import Account, Accounts, Fate, Window, account_of, num_wrong

EXPECTED = tuple("abcdef")
WINDOW = Window(10.0, 20.0)


def visit(pieces="abcdef", *, status=200, finish="length", times=None, ended_at=9.0, **more):
    made = Client("r", 1, Ask((1, 2), 6, 1), is_connected=True, status=status, finish=finish, ended_at=ended_at, **more)
    made.pieces = list(pieces)
    made.arrivals = times or [float(number) for number in range(len(pieces))]
    return made


def heard(*accounts):
    testimony = Accounts()
    for account in accounts:
        testimony.hear(account)
    return testimony


def told(one, **options):
    return heard(account_of(one, EXPECTED, **options)).summary()


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
    made = told(visit(times=[0.0, 0.5, 2.0, 2.1, 2.2, 2.3]))
    assert (made.requests, made.failed, made.wrong, made.gap_s, made.problems) == (1, 0, 0, 1.5, [])


@pytest.mark.parametrize(
    ("one", "fate"),
    [
        (visit("abc", finish=None, problem="gone"), Fate.FAILED),
        (visit("abc", finish=None, has_left=True), Fate.LEFT),
        (visit("", status=503, finish=None), Fate.REFUSED),
        (visit("", status=429, finish=None), Fate.REFUSED),
        (visit("", status=500, finish=None), Fate.FAILED),
        (visit("", status=None, finish=None), Fate.FAILED),  # it never ended
        (visit("abc", finish=None, problem="503 in mid-stream"), Fate.FAILED),
        (visit("", status=NO_ANSWER, finish=None, problem="reset"), Fate.FAILED),
    ],
)
def test_each_request_has_one_fate(one, fate):
    account = account_of(one, EXPECTED)
    assert account.fate is fate
    assert bool(account.problem) == (fate is Fate.FAILED)


def test_nobody_listened_is_a_refusal():
    one = visit("", status=NO_ANSWER, finish=None)
    one.is_connected = False
    assert account_of(one, EXPECTED).fate is Fate.REFUSED


def test_a_killed_gateway_takes_its_streams_along():
    made = told(visit("abc", finish=None, problem="gone"), is_excused=True)
    assert (made.failed, made.lost, made.gap_s) == (0, 1, 0.0)
    assert told(visit("abX", finish=None), is_excused=True).wrong == 1


def test_silence_until_a_stream_breaks_counts_and_that_of_slow_readers_does_not():
    assert told(visit("ab", finish=None, times=[0.0, 1.0])).gap_s == 8.0
    assert told(visit(times=[0.0, 50.0, 51.0, 52.0, 53.0, 54.0]), is_timed=False).gap_s == 0.0


def test_a_silence_counts_whole_if_the_window_had_a_part_in_it():
    testimony = heard(
        Account("stream", 5.0, 31.0, [5.0, 8.0, 12.5, 13.0, 19.0, 30.0, 31.0]),
        Account("chat", 0.0, 10.0, [0.0, 10.0]),
        Account("chat", 20.0, 60.0, [20.0, 60.0]),
    )
    assert (testimony.summary(WINDOW).gap_s, testimony.summary(WINDOW).gap_of) == (11.0, "stream")
    assert testimony.summary(Window(10.0, 18.0)).gap_s == 6.0
    assert heard().summary(WINDOW).gap_s == 0.0


def test_problems_are_those_of_requests_that_the_window_met():
    times = ((1.0, 9.0), (9.0, 11.0), (21.0, 22.0))
    testimony = heard(*(Account("chat", began, ended, problem=f"at {began}") for began, ended in times))
    assert testimony.summary(WINDOW).problems == ["at 9.0"]
    assert testimony.kinds_since(25.0) == set()
    assert testimony.kinds_since(21.0) == {"chat"}
