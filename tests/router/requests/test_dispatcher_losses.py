"""Engines die, fall silent or come back: the dispatcher lets their requests go on elsewhere."""

import pytest

from mesh.effects import Forget
from mesh.wire.requests import (
    Cancel,
    Epoch,
    FinishReason,
    RefusalCode,
)
from router.effects import Deliver, Fail, SendToEngine
from router.generation import Fault, NoEngines, TokenBatch
from router.requests.request_state import ANY_HOP
from tests.router.cluster import M0, M1, P0, P1, sender_of
from tests.router.requests.dispatching import (
    BUSY,
    LIMITS,
    World,
    cancels,
    only_failure,
    only_submit,
    running_on,
    submits,
    without_probes,
)


def test_a_failed_hand_over_avoids_the_decode_engine_and_keeps_the_tokens():
    world = World(P0, M0, M1)
    world.submit("r", 100, max_tokens=16)
    world.accept()
    world.tokens(P0, 0, 10)
    to, submit = only_submit(world.refuse(P0, code=RefusalCode.PEER_SILENT))
    assert (to, submit.decode_engine) == (P0, M1)
    assert submit.spec.generated == [10]
    assert world.tokens(P0, 1, 11, epoch=(1, 0))[0].batch.tokens == (11,)


def test_a_refusal_of_an_old_owner_changes_nothing():
    world = World(P0, M0)
    world.submit()
    world.accept()
    world.tokens(M0, 0, 10, epoch=(0, 1))
    assert world.refuse(P0) == []


# --- losses
def test_the_requests_of_a_dead_engine_continue_with_their_tokens():
    world = World(P0, M0, M1, lease_s=1.0)
    world.submit("r", 100)
    world.accept()
    world.tokens(M0, 0, 10, 11, epoch=(0, 1))
    world.wait(0.9)
    for engine in (P0, M1):
        world.status(engine)
    forget, place, send = without_probes(world.wait(0.2))
    assert forget == Forget(M0)
    assert place.route.attempt == 1
    assert (send.to, send.message.epoch, send.message.decode_engine) == (P0, Epoch(1), M1)
    assert send.message.spec.generated == [10, 11]
    assert send.message.spec.first_token_age_s == pytest.approx(1.0)
    assert send.message.spec.age_s == pytest.approx(1.0)
    assert world.tokens(M1, 2, 12, epoch=(1, 1))[0].batch.tokens == (12,)


def test_a_restart_is_a_loss():
    world = World(P0, P1, M0)
    world.submit()
    world.accept()
    effects = world.status(P0, incarnation=2)
    assert effects[0] == Forget(P0)
    assert only_submit(effects)[0] == P1


def test_the_loss_of_the_decode_engine_before_the_hand_over_stops_the_prefill():
    world = World(P0, M0, M1)
    world.submit()
    world.accept()
    effects = world.status(M0, incarnation=2)
    assert (P0, Cancel("r", Epoch(0, ANY_HOP))) in cancels(effects)
    assert submits(effects)


def test_the_loss_of_the_prefill_engine_after_the_hand_over_changes_nothing():
    world = World(P0, M0)
    world.submit()
    world.accept()
    world.tokens(M0, 0, 10, epoch=(0, 1))
    assert world.status(P0, incarnation=2) == [Forget(P0)]


def test_no_engine_left_means_waiting_for_one_beyond_the_promise_but_not_for_ever():
    world = World(M0, lease_s=1.0)
    world.submit("r", slo_ttft_s=2.0)
    world.accept(M0)
    world.tokens(M0, 0, 10)
    assert without_probes(world.wait(10.0)) == [Forget(M0)]
    assert only_submit(world.status(M0, incarnation=2))[1].spec.generated == [10]
    world.wait(1.5)
    assert isinstance(only_failure(world.wait(40.0)), NoEngines)


def test_an_overdue_continuation_runs_wherever_it_can():
    world = World(P0, M0)
    world.submit("r", slo_ttft_s=2.0)
    world.accept()
    world.tokens(M0, 0, 10, epoch=(0, 1))
    world.status(P0, **BUSY)
    assert submits(world.status(M0, incarnation=2, min_slack_s=0.0)) == []
    assert only_submit(world.wait(2.0))[0] == M0


def test_a_continuation_waits_for_an_engine_that_can_hold_it():
    world = World(M0)
    world.submit("r", 1000)
    world.accept(M0)
    world.tokens(M0, 0, 10)
    assert submits(world.status(M0, incarnation=2, num_blocks=4)) == []
    assert only_submit(world.status(M1))[0] == M1


def test_no_answer_is_a_loss_and_a_late_answer_is_stopped():
    world = World(P0, P1, M0)
    world.submit()
    effects = world.wait(1.0)
    assert (P0, Cancel("r", Epoch(0, ANY_HOP))) in cancels(effects)
    assert only_submit(effects)[0] == P1
    assert cancels(world.accept(P0, attempt=0)) == [(P0, Cancel("r", Epoch(0, ANY_HOP)))]


def test_a_request_that_kills_engine_after_engine_is_given_up():
    world = World(M0, policy="round_robin")
    effects, incarnation = world.submit(slo_ttft_s=60.0), 1
    while submits(effects):
        incarnation += 1
        effects = world.status(M0, incarnation=incarnation) + world.wait(0.9)
    error = only_failure(effects)
    assert error.fault is Fault.SERVER
    assert incarnation == 2 + LIMITS.max_deaths


def test_an_engine_that_dies_now_and_then_is_not_held_against_a_request_that_goes_on():
    world = World(M0, policy="round_robin")
    effects = world.submit(slo_ttft_s=60.0, max_tokens=1000)
    position = 0
    for attempt in range(10):
        _, submit = only_submit(effects)
        assert len(submit.spec.generated) == position
        world.accept(M0, attempt=attempt)
        world.tokens(M0, position, *range(20), epoch=(attempt, 0))
        position += 20
        effects = world.status(M0, incarnation=attempt + 2) + world.wait(0.9)


def test_silence_alone_ends_a_request_only_after_long():
    world = World(M0, M1, policy="round_robin")
    effects, waited_s = world.submit(slo_ttft_s=600.0), 0.0
    while not (failures := [one for one in effects if isinstance(one, Fail)]):
        effects = world.wait(0.5) + world.status(M0) + world.status(M1)
        waited_s += 0.5
    assert waited_s == pytest.approx(LIMITS.stall_s, abs=10.0)
    assert "without a token, on whatever engine" in str(failures[0].error)


def test_a_gap_that_does_not_fill_is_recovered_from_the_tokens_at_hand():
    world = World(P0, M0, M1)
    world.submit()
    world.accept()
    world.tokens(P0, 0, 10)
    assert without_probes(world.tokens(M0, 2, 12, epoch=(0, 1))) == []
    _, submit = only_submit(world.wait(1.0))
    assert (submit.spec.generated, submit.decode_engine) == ([10], M1)


def test_silence_is_recovered_in_the_end():
    world = World(M0, M1)
    world.submit()
    world.accept(M0)
    assert submits(world.wait(59.0)) == []
    assert only_submit(world.wait(2.0))[0] == M1


def test_an_old_owner_that_goes_on_is_fenced():
    world = World(P0, P1, M0)
    world.submit()
    world.wait(1.0)
    assert world.tokens(P0, 0, 99) == [SendToEngine(P0, Cancel("r", Epoch(0, 0)))]
    assert world.tokens(P1, 0, 10, epoch=(1, 0)) == [Deliver("r", TokenBatch((10,), None, 0, None, None))]


def test_what_the_engine_cancelled_unasked_is_recovered():
    world = World(M0, M1)
    world.submit()
    world.accept(M0)
    world.tokens(M0, 0, 10)
    to, submit = only_submit(world.tokens(M0, 1, finish=FinishReason.CANCELLED))
    assert (to, submit.spec.generated) == (M1, [10])


# --- engines that are known to have died, or hang
def test_an_incarnation_that_ended_is_not_waited_for():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    effects = world.checked(world.dispatcher.declare_dead(sender_of(at), world.now))
    assert effects[0] == Forget(at)
    to, submit = only_submit(effects)
    assert (to, submit.spec.generated) == (other, [10, 11])
    assert world.dispatcher.declare_dead(sender_of(at), world.now) == []
    assert world.status(at) == [], "a beacon that was on its way"
    world.status(at, incarnation=2)
    assert world.dispatcher.declare_dead(sender_of(at), world.now) == []
    assert submits(world.submit("next", slo_ttft_s=5.0)), "the new incarnation serves"


def test_an_engine_that_was_only_silent_is_told_to_stop_what_it_had():
    world = World(M0, M1, lease_s=1.0)
    to, _ = only_submit(world.submit("r", 100, slo_ttft_s=50.0))
    world.accept(to)
    world.now = 0.9
    world.status(M1 if to == M0 else M0)
    assert Forget(to) in world.wait(0.5)
    assert cancels(world.status(to)) == [(to, Cancel("r", Epoch(0, ANY_HOP)))]
    assert cancels(world.status(to)) == []


def test_a_new_incarnation_has_nothing_to_stop():
    world = World(M0, lease_s=1.0)
    world.submit("r", 100, slo_ttft_s=50.0)
    world.accept(M0)
    world.wait(1.5)
    assert cancels(world.status(M0, incarnation=2)) == []
