"""Turns that were disturbed do not count, and routers are compared in the same rounds."""

from bench.harness.machine import Conditions, disturbed, watched
from bench.peers.front.trials import Turn, Turns

QUIET = Conditions(100.0, 0.01)


def turn(router: str, number: int, goodput: float, conditions: Conditions = QUIET) -> Turn:
    return Turn(router, number, "34/s", {"goodput at 34/s": goodput, "% kept at 34/s": 2 * goodput}, conditions)


def test_turns_at_a_slow_pace_or_beside_others_are_left_out():
    slow, shared = Conditions(80.0, 0.0), Conditions(100.0, 0.5)
    assert disturbed([QUIET, QUIET, slow, shared]) == [False, False, True, True]
    turns = Turns([turn("ours", 0, 30.0), turn("ours", 1, 40.0), turn("ours", 2, 5.0, shared)])
    assert turns.num_left_out == 1
    assert turns.spread("ours", "goodput at 34/s").text() == "35.0 (30.0 to 40.0)"


def test_routers_are_compared_in_rounds_in_which_both_count():
    shared = Conditions(100.0, 0.5)
    turns = Turns(
        [turn("ours", 0, 30.0), turn("ours", 1, 40.0), turn("theirs", 0, 15.0), turn("theirs", 1, 1.0, shared)]
    )
    assert turns.ratio("ours", "theirs", "goodput at 34/s").text() == "2.0"


def test_machine_is_watched_while_something_runs():
    with watched() as conditions:
        pass
    assert conditions.pace > 0
    assert conditions.others >= 0
