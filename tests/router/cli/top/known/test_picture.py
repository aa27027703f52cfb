"""One picture of what several gateways tell."""

import msgspec
import pytest

from mesh.wire.control import ProcessState
from mesh.wire.placement import Decision, PlacementStatus
from router.cli.top.known.picture import MOST_DECISIONS, MOST_ROWS, MeshPicture
from router.feed.frames import NULL, Bye, MeshFrame, PlacementFrame
from tests.router.cli.top.told import (
    NOW,
    bucket,
    engine,
    event,
    gateway,
    hello,
    life,
    promises,
    requests,
    rows,
    snapshot,
)


@pytest.fixture
def picture():
    """Two gateways that are heard."""
    known = MeshPicture("test", ["a", "b"])
    for name in known.sources:
        known.take(name, hello(name), NOW)
    return known


def test_an_engine_is_shown_as_it_was_told_last(picture):
    picture.take("a", rows(e=engine(running=1)), NOW)
    picture.take("b", rows(e=engine(running=2), f=engine()), NOW)
    picture.take("a", rows(e=engine(running=3)), NOW)
    assert [(row.id, row.running) for row in picture.engines()] == [("e", 3), ("f", 3)]


def test_a_row_that_all_call_gone_is_gone(picture):
    for name in ("a", "b"):
        picture.take(name, rows(e=engine()), NOW)
        picture.take(name, MeshFrame(NOW, {"e": NULL}, {}), NOW)
    assert picture.engines() == []


def test_a_silent_gateway_is_not_believed_while_another_speaks(picture):
    picture.take("a", rows(e=engine(running=1)), NOW)
    picture.take("b", rows(e=engine(running=2)), NOW)
    picture.lost("b", "cannot be reached", NOW)
    assert [row.running for row in picture.engines()] == [1]
    assert [(source.gateway, source.problem) for source in picture.silent] == [("b", "cannot be reached")]
    picture.lost("a", "cannot be reached", NOW)
    assert [row.running for row in picture.engines()] == [2], "what was known last is better than nothing"


def test_the_time_of_a_silence_is_that_of_its_beginning(picture):
    picture.lost("b", "one", NOW + 1)
    picture.lost("b", "other", NOW + 2)
    assert [(source.since, source.problem) for source in picture.silent] == [(NOW + 1, "other")]
    picture.take("b", hello("b"), NOW + 3)
    assert picture.silent == []


def test_a_gateway_that_leaves_is_silent(picture):
    picture.take("b", Bye(NOW), NOW)
    assert [source.gateway for source in picture.silent] == ["b"]


def test_gateways_tell_of_each_other(picture):
    picture.take("a", MeshFrame(NOW, {}, {"b": gateway(admin_url="http://127.0.0.1:7")}), NOW)
    assert picture.admin_urls() == {"b": "http://127.0.0.1:7"}


def test_clocks_of_gateways_may_differ(picture):
    picture.take("b", hello("b", at=NOW + 1000), NOW)
    picture.take("a", requests(*life("first", NOW)), NOW)
    picture.take("b", requests(*life("second", NOW + 1001)), NOW)
    picture.take("b", promises(bucket(NOW + 995), at=NOW + 1000), NOW)
    assert [(at, row.id) for at, row in picture.requests()] == [(NOW + 1, "second"), (NOW, "first")]
    assert [row.ended for row in picture.promises(NOW)] == [10]
    assert [row.ended for row in picture.promises(NOW + 70)] == [0]


def test_promises_of_all_gateways_are_summed(picture):
    for name in ("a", "b"):
        picture.take(name, promises(bucket(NOW - 5)), NOW)
    assert [(row.key, row.ended, row.kept) for row in picture.promises(NOW)] == [("(all)", 20, 18)]


def test_it_is_settled_when_all_have_told_or_are_silent(picture):
    for frame in snapshot("a"):
        picture.take("a", frame, NOW)
    assert not picture.is_settled
    picture.lost("b", "gone", NOW)
    assert picture.is_settled


def test_a_gateway_that_is_back_tells_its_requests_in_flight_anew(picture):
    picture.take("a", requests(event("lost", "arrived"), *life("done")), NOW)
    picture.take("a", hello("a"), NOW)
    assert [row.id for _, row in picture.requests()] == ["done"]


def status(interval: int) -> PlacementFrame:
    decision = Decision(interval, "kept", "no better plan", 1, 60.0)
    told = PlacementStatus(
        interval, ProcessState.READY, "local", 1, "apply", "watching", 3, 5.0, decision=decision, decision_age_s=2.0
    )
    return PlacementFrame(NOW, msgspec.to_builtins(told))


def test_decisions_of_the_placement_daemon_are_kept_once(picture):
    for interval in range(MOST_DECISIONS + 5):
        picture.take("a", status(interval), NOW)
        picture.take("b", status(interval), NOW)
    assert len(picture.decisions) == MOST_DECISIONS
    assert (picture.decisions[0].at, picture.decisions[0].reason) == (NOW - 2, "no better plan")
    assert picture.placement().doing == "watching"
    picture.take("a", PlacementFrame(NOW, {"made": "up"}), NOW)
    for name in ("a", "b"):
        picture.take(name, PlacementFrame(NOW, None), NOW)
    assert picture.placement() is None


def test_no_feed_makes_it_grow(picture):
    picture.take("a", MeshFrame(NOW, {f"{number}": engine() for number in range(2 * MOST_ROWS)}, {}), NOW)
    assert len(picture.engines()) == MOST_ROWS
