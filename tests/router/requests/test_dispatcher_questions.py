"""Engines that say nothing of a request are asked whether they have it."""

import pytest

from mesh.wire.requests import (
    Accepted,
    Cancel,
    Epoch,
    FinishReason,
    Held,
    Holding,
    NotHeld,
    Probe,
    ProbeQuestion,
)
from router.effects import SendToEngine
from router.requests.request_state import ANY_HOP
from tests.router.cluster import M0, M1, P0
from tests.router.requests.dispatching import World, only_submit, probes, running_on, submits


# --- lost words
def test_an_engine_that_is_silent_about_a_request_is_asked_whether_it_has_it():
    world = World(P0, M0, M1)
    world.submit("r")
    world.accept(P0)
    assert probes(world.wait(0.9)) == []
    assert probes(world.wait(0.6)) == [(P0, [("r", 0, 0)]), (M0, [("r", 0, 0)])]
    assert world.receive(P0, NotHeld([("r", 0)])) == [], "it may have handed it over"
    effects = world.receive(M0, NotHeld([("r", 0)]))
    assert only_submit(effects)[1].epoch == Epoch(1)
    assert world.dispatcher.breakers.all_closed


def test_a_request_that_is_heard_of_is_not_asked_about():
    world, at = running_on(M0)
    for offset in range(2, 12):
        assert probes(world.wait(0.4)) == []
        world.tokens(at, offset, 10 + offset)
    assert probes(world.wait(0.8)) == [(at, [("r", 0, 12)])], "once its answer has begun, after half as long"


def test_an_engine_that_does_not_answer_a_submit_is_asked_whether_it_came():
    world = World(M0, M1)
    to, _ = only_submit(world.submit("r"))
    assert probes(world.wait(0.25)) == [(to, [("r", 0, 0)])]
    again, submit = only_submit(world.receive(to, NotHeld([("r", 0)])))
    assert (again, submit.epoch) == (to, Epoch(1)), "it is not the engine's fault"
    assert world.dispatcher.breakers.all_closed


def test_the_owner_of_a_stream_with_a_gap_is_asked_for_what_is_missing():
    world, at = running_on(M0, M1)
    assert world.tokens(at, 3, 13) == [SendToEngine(at, Probe([ProbeQuestion("r", 0, 2)]))]
    world.wait(0.1)
    assert world.tokens(at, 4, 14) == [], "once for a gap, unless the answer is long in coming"
    assert probes(world.wait(0.2)) == [(at, [("r", 0, 2)])]
    [delivered] = world.tokens(at, 2, 12, 13, 14)
    assert delivered.batch.tokens == (12, 13, 14)
    assert submits(world.wait(5.0)) == []


def test_it_is_asked_again_while_nothing_comes():
    world, at = running_on(M0, M1)
    world.tokens(at, 3, 13, finish=FinishReason.STOP)
    asked = probes(world.wait(0.8))
    assert asked == 3 * [(at, [("r", 0, 2)])]
    assert [effect.batch.tokens for effect in world.tokens(at, 2, 12)] == [(12,), (13,)]
    assert not world.dispatcher.num_requests


def test_what_an_engine_has_not_any_more_goes_on_with_all_tokens():
    world, at = running_on(M0)
    assert probes(world.wait(0.5)) == [(at, [("r", 0, 2)])]
    to, submit = only_submit(world.receive(at, NotHeld([("r", 0)])))
    assert (to, submit.epoch, submit.spec.generated) == (at, Epoch(1), [10, 11])


def test_late_and_strange_denials_are_ignored():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    world.wait(1.6)
    for engine, requests in ((at, [("r", 1), ("nobody", 0)]), (other, [("r", 0)])):
        assert world.receive(engine, NotHeld(requests)) == []


def test_a_denial_of_one_round_says_nothing_in_the_next():
    world = World(P0, M0)
    world.submit("r")
    world.accept(P0)
    world.wait(1.6)
    world.receive(M0, NotHeld([("r", 0)]))
    assert probes(world.wait(1.0))
    assert submits(world.receive(P0, NotHeld([("r", 0)]))) == [], "meanwhile M0 has it"


@pytest.mark.parametrize("num_ahead", [12, None])
def test_silence_is_borne_while_an_engine_says_that_it_has_the_request(num_ahead):
    world = World(M0, M1, lease_s=10_000.0)
    world.submit("r")
    world.accept(M0)
    for _ in range(20):
        assert probes(world.wait(10.0))
        assert world.receive(M0, Held([Holding("r", 0, num_ahead)])) == []
    assert submits(world.wait(59.0)) == []
    assert only_submit(world.wait(2.0))[0] == M1, "it said so for the last time"


def test_an_engine_that_has_what_was_given_up_is_told_again():
    """What cancelled it was lost, and it waits there."""
    world = World(M0, M1)
    world.submit("r")
    world.accept(M0)
    assert world.receive(M1, Held([Holding("over", 2, 7)])) == [SendToEngine(M1, Cancel("over", Epoch(2, ANY_HOP)))]
    world.receive(M0, NotHeld([("r", 0)]))
    world.receive(M1, Accepted("r", Epoch(1), 1))
    assert world.receive(M0, Held([Holding("r", 0, 7)])) == [SendToEngine(M0, Cancel("r", Epoch(0, ANY_HOP)))]


def test_that_others_have_it_or_had_it_before_says_nothing():
    world = World(M0, M1)
    world.submit("r")
    world.accept(M0)
    world.wait(50.0)
    world.receive(M1, Held([Holding("r", 0, None)]))
    world.receive(M0, Held([Holding("r", 1, None), Holding("nobody", 0, 3)]))
    assert only_submit(world.wait(11.0))[0] == M1
