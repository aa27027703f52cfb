"""Events of requests, folded."""

from router.cli.top.known.requests import MOST_ENDED, MOST_ID_LETTERS, MOST_IN_FLIGHT, MOST_MOVES, Requests
from tests.router.cli.top.told import NOW, event, life, requests


def folded(*events, **fields):
    known = Requests("g")
    known.take(requests(*events, **fields))
    return known


def test_a_request_is_followed_to_its_end():
    (row,) = folded(*life("r"))
    assert (row.status, row.engine, row.ttft_s, row.tpot_s, row.kept) == ("finished", "decode-0", 0.2, 0.05, True)
    assert (row.prompt_tokens, row.tokens, row.num_moves, row.reason) == (100, 9, 1, "stop")


def test_states_before_the_end_are_told_apart():
    known = Requests("g")
    states = []
    for one in life("r")[:3]:
        known.take(requests(one))
        states += [row.status for row in known]
    assert states == ["waiting", "prefill", "decode"]


def test_the_first_move_to_the_decode_engine_is_a_hand_over_and_others_migrations():
    known = folded(*life("r")[:4], event("r", "moved", engine="decode-1"), event("r", "interrupted", reason="lost"))
    assert [(move.kind, move.source, move.target) for move in known.moves()] == [
        ("hand-over", "prefill-0", "decode-0"),
        ("migration", "decode-0", "decode-1"),
        ("interrupted", "decode-1", ""),
    ]
    assert [(row.status, row.engine) for row in known] == [("waiting", "")]


def test_what_is_told_again_counts_once():
    known = folded(*life("r")[:4], *life("s"))
    known.restart()
    known.take(requests(*life("r")[:4], *life("s")))
    assert [row.id for row in known] == ["s", "r"]
    assert len(list(known.moves())) == 2


def test_no_feed_makes_it_grow():
    known = Requests("g")
    for number in range(3 * MOST_IN_FLIGHT):
        known.take(requests(*life(f"{number}"), event(f"open-{number}", "arrived")))
    assert known.num_in_flight == MOST_IN_FLIGHT
    assert len(list(known)) == MOST_IN_FLIGHT + MOST_ENDED
    assert len(list(known.moves())) == MOST_MOVES


def test_ids_that_no_gateway_makes_are_left_out():
    assert list(folded(event("x" * (MOST_ID_LETTERS + 1), "arrived"))) == []


def test_a_request_whose_end_may_not_have_been_told_is_forgotten():
    known = folded(*life("r")[:3])
    known.take(requests(at=NOW + 300))
    assert known.num_in_flight == 1, "its end is still to come"
    known.take(requests(event("s", "arrived", NOW + 300), one_in=2, at=NOW + 300))
    assert [row.id for row in known] == ["s"]


def test_names_cannot_speak_to_the_terminal():
    known = folded(event("r", "dispatched", engine="\x1b[2Jprefill\n", reason="\u202eleft"))
    assert [(row.engine, row.reason) for row in known] == [("\ufffd[2Jprefill ", "\ufffdleft")]
