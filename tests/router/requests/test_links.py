"""Pairs of engines that do not reach each other: how long they are left alone, and who is left out."""

import pytest

from router.policies.policy import Dispatch
from router.requests.links import MAX_PAUSE_S, PAUSE_S, Links
from tests.router.cluster import D0, D1, M0, P0, P1, make_engine

NOW = 10.0


def in_the_way(links: Links, decode: str = D0, now: float = NOW, serving: tuple[str, ...] = (P0, P1, D0, D1)):
    return links.in_the_way(Dispatch(P0, decode, "a rule", 0.1, 0.2), [make_engine(one) for one in serving], now)


def test_a_whole_link_is_in_nobodys_way():
    links = Links()
    links.failed(P1, D0, NOW)
    links.failed(P0, D1, NOW)
    assert in_the_way(links) is None


def test_a_prefill_engine_that_reaches_another_decode_engine_stays():
    links = Links()
    links.failed(P0, D0, NOW)
    assert in_the_way(links) == D0


@pytest.mark.parametrize("serving", [(P0, P1, D0, D1), (P0, D0)], ids=str)
def test_one_that_reaches_no_decode_engine_is_left_out(serving: tuple[str, ...]):
    links = Links()
    for decode in {D0, D1}.intersection(serving):
        links.failed(P0, decode, NOW)
    assert in_the_way(links, serving=serving) == P0


def test_another_prefill_engine_is_not_taken_for_one_to_hand_over_to():
    links = Links()
    links.failed(M0, D0, NOW)
    dispatch = Dispatch(M0, D0, "a rule", 0.1, 0.2)
    assert links.in_the_way(dispatch, [make_engine(one) for one in (M0, P0, D0)], NOW) == M0


def test_a_link_is_tried_again_after_a_pause_that_doubles():
    links, now = Links(), NOW
    for length_s in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S):
        links.failed(P0, D0, now)
        assert in_the_way(links, now=now + 0.99 * length_s) == D0
        now += length_s
        assert in_the_way(links, now=now) is None
    for _ in range(8):
        links.failed(P0, D0, now)
        now += MAX_PAUSE_S
    assert in_the_way(links, now=now) is None


def test_one_request_tries_and_the_others_wait_for_it():
    links, then = Links(), NOW + PAUSE_S
    links.failed(P0, D0, NOW)
    assert in_the_way(links, now=then) is None
    links.sent(Dispatch(P0, D0, "a rule", 0.1, 0.2), then)
    assert in_the_way(links, now=then) == D0
    links.failed(P0, D0, then + 0.5)
    assert in_the_way(links, now=then + 0.5 + 1.99 * PAUSE_S) == D0, "twice as long"
    links.sent(Dispatch(P0, D0, "a rule", 0.1, 0.2), then + 0.5 + 2 * PAUSE_S)
    links.succeeded(P0, D0)
    assert in_the_way(links, now=then + 0.5 + 2 * PAUSE_S) is None


def test_a_request_over_a_whole_link_tries_nothing():
    links = Links()
    links.sent(Dispatch(P0, D0, "a rule", 0.1, 0.2), NOW)
    assert links.all_whole


def test_hand_overs_that_fail_together_count_once():
    links = Links()
    for _ in range(5):
        links.failed(P0, D0, NOW)
    assert in_the_way(links, now=NOW + PAUSE_S) is None


@pytest.mark.parametrize("end", [lambda links: links.succeeded(P0, D0), lambda links: links.forget(D0)])
def test_a_success_or_the_end_of_an_engine_makes_it_whole(end):
    links = Links()
    links.failed(P0, D0, NOW)
    assert not links.all_whole
    end(links)
    assert links.all_whole
    assert in_the_way(links) is None
