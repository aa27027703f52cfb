from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mesh.effects import Forget
from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState, Role
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Epoch,
    Failed,
    FailureCode,
    FinishReason,
    Held,
    Holding,
    Moved,
    NotHeld,
    Probe,
    ProbeQuestion,
    Recall,
    RefusalCode,
    Refused,
    StepTokens,
    Submit,
)
from mesh.wire.status import DecodeCost, Demand, PendingPrefill, Wanted
from router.effects import Deliver, Fail, SendToEngine, SetRoute
from router.generation import Fault, NoEngines, Overloaded, RequestFailed, TokenBatch
from router.history.records import PROMPT_BLOCK
from router.history.timelines import Timelines
from router.policies.policy import Dispatch
from router.policies.registry import make_policy
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.requests.request_state import ANY_HOP
from router.requests.routing import TRIES_PER_ROUND
from router.view.monitor import Monitor
from tests.router.cluster import D0, M0, M1, P0, P1, SERVICE, make_delta, make_spec, make_status, sender_of, submit_to

LIMITS = DispatchLimits(max_requests=8, max_waiting=4, reply_s=1.0)
BUSY = {"prefill_remaining_s": 5.0, "num_waiting": 1}
STOP = FinishReason.STOP


class World:
    """A dispatcher, the statuses that it hears, and what it did."""

    def __init__(self, *engines, policy="tropical", limits=LIMITS, lease_s=100.0) -> None:
        self.now = 0.0
        self.seq = 0
        self.dispatcher = Dispatcher(make_policy(PolicySpec(policy), Random(0)), Monitor(lease_s), limits, Timelines())
        for engine in engines:
            self.status(engine)

    def status(self, engine, incarnation=1, **numbers):
        self.seq += 1
        status = make_status(engine, self.seq, **numbers)
        return self.checked(self.dispatcher.observe(sender_of(engine, incarnation), status, self.now))

    def submit(self, id_="r", *args, **fields):
        return self.checked(submit_to(self.dispatcher, make_spec(id_, *args, **fields), self.now))

    def accept(self, engine=P0, id_="r", attempt=0):
        return self.receive(engine, Accepted(id_, Epoch(attempt), self.seq + 1))

    def refuse(self, engine=P0, id_="r", attempt=0, code=RefusalCode.FULL):
        return self.receive(engine, Refused(id_, Epoch(attempt), code, "no"))

    def tokens(self, engine, offset, *tokens, **fields):
        return self.receive(engine, StepTokens([make_delta(offset, *tokens, **fields)]))

    def receive(self, engine, message):
        return self.checked(self.dispatcher.receive(engine, message, self.now))

    def wait(self, seconds):
        """Time passes, and every timer goes off at its moment."""
        end, effects = self.now + seconds, []
        while (deadline := self.dispatcher.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            effects += self.dispatcher.expire(self.now)
        self.now = end
        return self.checked(effects)

    def checked(self, effects):
        self.dispatcher.check_invariants()
        return effects


def submits(effects):
    return [(e.to, e.message) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Submit)]


def only_submit(effects):
    ((to, message),) = submits(effects)
    return to, message


def probes(effects):
    return [(e.to, e.message.requests) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Probe)]


def without_probes(effects):
    return [e for e in effects if not (isinstance(e, SendToEngine) and isinstance(e.message, Probe))]


def cancels(effects):
    return [(e.to, e.message) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Cancel)]


def only_failure(effects):
    (failure,) = [effect for effect in effects if isinstance(effect, Fail)]
    return failure.error


def running_on(engine, *others):
    world = World(engine, *others)
    to, _ = only_submit(world.submit("r", 100))
    world.accept(to)
    world.tokens(to, 0, 10, 11)
    return world, to


def test_the_owner_of_a_request_that_moved_is_watched_before_its_first_token():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    assert world.receive(at, Moved("r", Epoch(0, 1), other)) == []
    assert cancels(world.status(at, incarnation=2)) == []  # the old owner may die
    to, submit = only_submit(world.status(other, incarnation=2))
    assert (to, submit.spec.generated) == (at, [10, 11])


def test_a_request_that_moved_to_an_engine_that_is_dead_already_goes_on_elsewhere():
    world, at = running_on(M0)
    to, submit = only_submit(world.receive(at, Moved("r", Epoch(0, 1), M1)))
    assert (to, submit.epoch) == (at, Epoch(1))


def test_late_and_strange_moves_are_ignored():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    world.tokens(other, 2, 12, epoch=Epoch(0, 2))
    assert world.receive(at, Moved("r", Epoch(0, 1), at)) == []
    assert only_submit(world.status(other, incarnation=2))


def test_the_new_owner_of_a_request_that_is_over_is_told():
    """It was cancelled while its old engine could not be reached, and moved on."""
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    cancelled = Cancel("r", Epoch(0, ANY_HOP))
    assert cancels(world.checked(world.dispatcher.cancel("r", world.now))) == [(at, cancelled)]
    assert cancels(world.receive(at, Moved("r", Epoch(0, 1), other))) == [(other, cancelled)]
    assert cancels(world.status(other)) == [(other, cancelled)], "again, lest it was lost"


def test_the_new_owner_of_an_attempt_that_was_given_up_is_told():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    world.status(at, incarnation=2)
    assert cancels(world.receive(at, Moved("r", Epoch(0, 1), other))) == [(other, Cancel("r", Epoch(0, ANY_HOP)))]


def test_an_engine_that_does_not_know_who_took_a_request_may_get_it_back_at_once():
    world, at = running_on(M0)
    to, submit = only_submit(world.refuse(at, code=RefusalCode.UNKNOWN_OWNER))
    assert (to, submit.epoch, submit.spec.generated) == (at, Epoch(1), [10, 11])


def test_a_request_goes_out_with_its_placement():
    place, send = World(P0, M0).submit("r", 100)
    assert isinstance(place, SetRoute)
    assert (place.route.prefill_engine, place.route.decode_engine) == (P0, M0)
    assert place.route.predicted_ttft_s == pytest.approx(0.1)
    assert send.to == P0
    assert (send.message.epoch, send.message.decode_engine, send.message.multiplex) == (Epoch(0), M0, False)


def test_a_multiplexed_request_stays_and_says_so():
    to, submit = only_submit(World(M0).submit())
    assert (to, submit.decode_engine, submit.multiplex) == (M0, None, True)


def test_tokens_reach_the_consumer_and_the_end_ends_the_request():
    world = World(P0, M0)
    world.submit()
    assert world.accept() == []
    (first,) = world.tokens(P0, 0, 10)
    (second,) = world.tokens(M0, 0, 10, 11, epoch=(0, 1))
    (last,) = world.tokens(M0, 2, 12, epoch=(0, 1), finish=STOP)
    assert [effect.batch.tokens for effect in (first, second, last)] == [(10,), (11,), (12,)]
    assert world.dispatcher.num_requests == 0


def test_a_burst_does_not_herd():
    world = World(P0, P1, M0, M1)
    sent = [only_submit(world.submit(f"r{n}"))[0] for n in range(6)]
    assert sent[:2] == [P0, P1], "idle ones first"
    assert sorted(sent[2:4]) == [P0, P1], "then one queued behind each"
    assert sorted(sent[4:]) == [M0, M1], "then into slack"


def test_what_fits_nowhere_waits_in_order_of_deadlines():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    for id_, slo_ttft_s in (("late", 30.0), ("soon", 10.0), ("urgent", 20.0)):
        priority = 1 if id_ == "urgent" else 0
        assert submits(world.submit(id_, slo_ttft_s=slo_ttft_s, priority=priority)) == []
    effects = world.status(P0)
    assert [submit.spec.id for _, submit in submits(effects)] == ["urgent", "soon"], "one runs, one is queued"
    world.accept(id_="urgent")
    assert submits(world.status(P0, prefill_remaining_s=0.1)) == []
    world.accept(id_="soon")
    assert only_submit(world.status(P0, prefill_remaining_s=0.1))[1].spec.id == "late"


def test_rule_4_rejects_at_the_deadline_with_a_hint_when_to_come_back():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    world.submit(slo_ttft_s=2.0)
    assert world.wait(1.9) == []
    error = only_failure(world.wait(0.1))
    assert isinstance(error, Overloaded)
    assert error.retry_after_s == pytest.approx(3.0), "its backlog of 5 s is 2 s old"
    assert "2.0 s" in str(error)
    assert world.dispatcher.num_requests == world.dispatcher.num_waiting == 0


def test_without_engines_a_request_waits_for_one_and_is_refused_at_its_deadline():
    world = World()
    world.submit("a", slo_ttft_s=2.0)
    assert isinstance(only_failure(world.wait(2.0)), NoEngines)
    world.submit("b", slo_ttft_s=2.0)
    world.wait(1.0)
    assert only_submit(world.status(M0))[0] == M0


def test_what_arrives_after_its_deadline_is_refused_though_nothing_else_happens():
    """Reading it took longer than was promised for its first token."""
    world = World()
    world.now = 5.0
    assert world.submit("r", slo_ttft_s=1.0, age_s=2.0) == []
    [refused] = world.wait(0.1)
    assert isinstance(refused, Fail)


def test_bounds_are_kept():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    for n in range(LIMITS.max_waiting):
        world.submit(f"w{n}")
    with pytest.raises(Overloaded, match="4 requests wait"):
        world.submit("one more")
    world = World(policy="round_robin", limits=DispatchLimits(2, 2, 1.0))
    world.status(M0)
    world.submit("a")
    world.submit("b")
    with pytest.raises(Overloaded, match="2 requests are in flight"):
        world.submit("c")


def test_a_request_too_large_for_every_pool_fails_at_once():
    error = only_failure(World(P0, M0).submit("r", 5000))
    assert isinstance(error, RequestFailed)
    assert error.fault is Fault.CLIENT


# --- refusals


def test_a_refused_request_goes_elsewhere_under_the_next_attempt():
    world = World(P0, P1, D0)
    world.submit()
    to, submit = only_submit(world.refuse(P0))
    assert (to, submit.epoch) == (P1, Epoch(1))


def test_an_engine_that_refused_is_asked_again_after_a_moment():
    world = World(M0)
    world.submit()
    assert submits(world.refuse(M0, code=RefusalCode.NO_SLACK)) == []
    to, submit = only_submit(world.wait(0.1))
    assert (to, submit.epoch) == (M0, Epoch(1))


def test_refusals_end_at_the_deadline():
    world = World(M0)
    world.submit(slo_ttft_s=1.0)
    failures, attempt = [], 0
    while not failures:
        effects = world.refuse(M0, attempt=attempt) + world.wait(0.3)
        failures = [effect.error for effect in effects if isinstance(effect, Fail)]
        attempt += len(submits(effects))
    assert isinstance(failures[0], Overloaded)
    assert world.now <= 1.5


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


def test_a_request_whose_step_fails_on_one_engine_goes_on_elsewhere():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    to, submit = only_submit(world.receive(at, Failed("r", Epoch(0), "out of order")))
    assert (to, submit.epoch, submit.spec.generated) == (other, Epoch(1), [10, 11])


def test_a_request_whose_step_fails_again_elsewhere_ends_and_no_engine_is_blamed():
    world = World(M0, M1)
    for n in range(10):
        first, _ = only_submit(world.submit(f"r{n}"))
        second, _ = only_submit(world.receive(first, Failed(f"r{n}", Epoch(0), "out of order")))
        error = only_failure(world.receive(second, Failed(f"r{n}", Epoch(1), "out of order")))
        assert (str(error), error.fault) == ("out of order", Fault.SERVER)
        world.wait(1.0)
        assert world.dispatcher.breakers.all_closed


@pytest.mark.parametrize("code", [FailureCode.GRAMMAR, FailureCode.SAMPLING])
def test_a_request_that_would_fail_anywhere_ends_at_once_and_no_engine_is_blamed(code):
    world, at = running_on(M0, M1)
    error = only_failure(world.receive(at, Failed("r", Epoch(0), "too dear", code)))
    assert (str(error), error.fault, error.code) == ("too dear", Fault.CLIENT, code)
    assert world.dispatcher.breakers.all_closed


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


def test_that_others_have_it_or_had_it_before_says_nothing():
    world = World(M0, M1)
    world.submit("r")
    world.accept(M0)
    world.wait(50.0)
    world.receive(M1, Held([Holding("r", 0, None)]))
    world.receive(M0, Held([Holding("r", 1, None), Holding("nobody", 0, 3)]))
    assert only_submit(world.wait(11.0))[0] == M1


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


def test_requests_leave_an_engine_that_hangs_if_there_is_another():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    effects = world.status(at, state=ProcessState.STUCK, error="a step of chat has been running for 9.0 s")
    assert cancels(effects) == [(at, Cancel("r", Epoch(0, ANY_HOP)))]
    to, submit = only_submit(effects)
    assert (to, submit.spec.generated) == (other, [10, 11])
    assert only_submit(world.submit("next"))[0] == other


def test_requests_stay_with_an_engine_that_hangs_if_no_other_can_hold_them():
    world, at = running_on(M0)
    world.status(M1, num_blocks=4)
    assert world.status(at, state=ProcessState.STUCK) == []


def test_requests_stay_with_an_engine_that_hangs_if_there_is_no_other():
    world, at = running_on(M0)
    assert world.status(at, state=ProcessState.STUCK) == []
    world.status(M1)
    assert only_submit(world.status(at, state=ProcessState.STUCK))[0] == M1


# --- circuit breakers


def fail_often(world, engine, other):
    """``engine`` fails every request that it gets; ``other`` answers."""
    for n in range(40):
        effects = world.submit(f"f{n}", slo_ttft_s=50.0)
        to, submit = only_submit(effects)
        if to == engine:
            to, submit = only_submit(world.receive(engine, Failed(f"f{n}", Epoch(0), "broken")))
        assert to == other
        world.tokens(other, 0, 1, id_=f"f{n}", epoch=submit.epoch, finish=STOP)
        world.wait(0.3)
        if not world.dispatcher.breakers.all_closed:
            return
    raise AssertionError("the breaker stayed closed")


def test_an_engine_that_fails_its_requests_gets_none_for_a_while_and_then_one():
    world = World(M0, M1, policy="round_robin")
    fail_often(world, M0, M1)
    assert world.dispatcher.breakers.states(world.now) == {M0: "open"}
    sent = [only_submit(world.submit(f"s{n}", slo_ttft_s=50.0))[0] for n in range(2)]
    assert sent == [M1, M1]
    assert world.dispatcher.timelines.of("s1").decisions[-1].seen.broken == {M0}
    for n in range(2):
        world.dispatcher.cancel(f"s{n}", world.now)
    world.wait(1.0)
    sent = [only_submit(world.submit(f"t{n}", slo_ttft_s=50.0))[0] for n in range(4)]
    assert sorted(sent) == [M0, M1, M1, M1]
    world.tokens(M0, 0, 1, id_=f"t{sent.index(M0)}")
    assert world.dispatcher.breakers.all_closed


def test_the_only_engine_is_used_though_its_breaker_is_open():
    world = World(M0, M1, policy="round_robin")
    fail_often(world, M0, M1)
    world.dispatcher.declare_dead(sender_of(M1), world.now)
    assert only_submit(world.submit("r"))[0] == M0


@pytest.mark.parametrize("code", [RefusalCode.FULL, RefusalCode.NO_SLACK, RefusalCode.NO_MEMORY, RefusalCode.DRAINING])
def test_back_pressure_opens_no_breaker(code):
    world = World(M0, policy="round_robin")
    effects, attempt = world.submit(slo_ttft_s=50.0), 0
    while attempt < 30:
        effects = world.refuse(M0, attempt=attempt, code=code) + world.wait(1.1)
        attempt += len(submits(effects))
    assert world.dispatcher.breakers.all_closed


def test_hand_overs_that_fail_open_the_breaker_of_the_decode_engine():
    world = World(P0, M0, M1)
    for n in range(20):
        _, submit = only_submit(world.submit(f"r{n}", slo_ttft_s=50.0))
        world.accept(P0, f"r{n}")
        attempt = 0
        while submit.decode_engine == M0:
            _, submit = only_submit(world.refuse(P0, f"r{n}", attempt, RefusalCode.PEER_SILENT))
            attempt += 1
            world.accept(P0, f"r{n}", attempt)
        world.dispatcher.cancel(f"r{n}", world.now)
        world.wait(0.5)
    assert set(world.dispatcher.breakers.states(world.now)) == {M0}


def test_where_a_request_is_follows_its_way():
    world = World(P0, M0)

    def engine() -> str | None:
        (place,) = world.dispatcher.locate("r".__eq__)
        assert (place.request, place.end) == ("r", "")
        return place.engine

    world.submit("r", 100, max_tokens=16)
    assert engine() is None, "the engine has not answered"
    world.accept()
    assert engine() == P0
    world.tokens(M0, 0, 10, epoch=(0, 1))
    assert engine() == M0
    world.status(M0, incarnation=2)
    assert engine() is None, "it was lost, and sent anew"


# --- cancels


def test_a_cancelled_request_is_stopped_on_both_engines():
    world = World(P0, M0)
    world.submit()
    assert cancels(world.dispatcher.cancel("r", 0.0)) == [(e, Cancel("r", Epoch(0, ANY_HOP))) for e in (P0, M0)]
    assert world.dispatcher.cancel("r", 0.0) == []
    assert cancels(world.tokens(P0, 0, 10)) == [(P0, Cancel("r", Epoch(0, ANY_HOP)))], "it had not heard of it"
    assert world.tokens(P0, 1, 11, finish=STOP) == []


def test_a_cancelled_request_leaves_the_queue():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    world.submit()
    assert world.dispatcher.cancel("r", 0.0) == []
    assert world.dispatcher.num_waiting == 0


def test_decisions_are_remembered_with_their_rule_and_numbers():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    world.submit(slo_ttft_s=9.0)
    world.status(P0, **BUSY)
    world.status(P0)
    waited, sent = world.dispatcher.timelines.of("r").decisions
    assert "busy" in waited.decision.reason
    assert sent.decision.rule.startswith("1")
    assert sent.decision.numbers["backlog_s"] == 0.0


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: requests are somewhere once, tokens come in order, and all end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(P0, P1, M0, M1, lease_s=2.0)
        self.received: dict[str, list[int]] = {}
        self.sent: dict[tuple[str, str], Submit] = {}  # what engines hold, by engine and request
        self.failed: set[str] = set()

    def take(self, effects) -> None:
        for effect in effects:
            match effect:
                case Deliver(request, batch):
                    self.received[request] += batch.tokens
                case Fail(request, _):
                    assert request not in self.failed
                    self.failed.add(request)
                case SendToEngine(to, Submit() as submit):
                    self.sent[to, submit.spec.id] = submit
                case SendToEngine(to, Cancel(request, epoch)):
                    held = self.sent.get((to, request))
                    if held is not None and held.epoch <= epoch:
                        del self.sent[to, request]

    @rule(num_tokens=st.integers(1, 1599), slo_ttft_s=st.sampled_from([0.5, 5.0]))
    def submit(self, num_tokens, slo_ttft_s):
        id_ = f"r{len(self.received)}"
        try:
            effects = self.world.submit(id_, num_tokens, slo_ttft_s=slo_ttft_s)
        except Overloaded:
            return
        self.received[id_] = []
        self.take(effects)

    @rule(data=st.data(), accepts=st.booleans())
    def answer(self, data, accepts):
        if self.sent:
            (engine, request), submit = data.draw(st.sampled_from(list(self.sent.items())))
            if accepts:
                self.take(self.world.accept(engine, request, submit.epoch.attempt))
            else:
                del self.sent[engine, request]
                self.take(self.world.refuse(engine, request, submit.epoch.attempt))

    @rule(data=st.data(), num_tokens=st.integers(1, 3), skipped=st.sampled_from([0, 0, 0, 1]))
    def generate(self, data, num_tokens, skipped):
        if self.sent:
            (engine, request), submit = data.draw(st.sampled_from(list(self.sent.items())))
            start = len(submit.spec.generated) + skipped
            tokens = range(start, start + num_tokens)
            self.take(self.world.tokens(engine, start, *tokens, id_=request, epoch=submit.epoch))

    @rule(
        engine=st.sampled_from([P0, P1, M0, M1]),
        incarnation=st.sampled_from([1, 1, 1, 2]),
        num_free=st.integers(0, 100),
    )
    def say(self, engine, incarnation, num_free):
        self.take(self.world.status(engine, incarnation, num_free_blocks=num_free))

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 3.0]))
    def wait(self, seconds):
        self.take(self.world.wait(seconds))

    @rule(data=st.data())
    def cancel(self, data):
        if self.received:
            self.take(self.world.dispatcher.cancel(data.draw(st.sampled_from(list(self.received))), self.world.now))

    @invariant()
    def tokens_are_in_order(self):
        for tokens in self.received.values():
            assert tokens == list(range(len(tokens)))

    def teardown(self):
        self.world.wait(10_000.0)
        assert self.world.dispatcher.num_requests == 0, "something is held for ever"


AnyOrder.TestCase.settings = settings(stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize("policy", ["tropical", "elastic"])
def test_a_service_whose_requests_wait_in_vain_takes_no_turns_of_another(policy):
    world = World(policy=policy, limits=DispatchLimits(max_requests=200, max_waiting=200, reply_s=1.0))
    world.status(P0, **BUSY, prefills=[PendingPrefill(0.1 * n, 0.05) for n in range(1, 20)])
    for n in range(2 * TRIES_PER_ROUND):
        world.submit(f"r{n}", slo_ttft_s=5.0)
    world.status(P1, services=("other",), state=ProcessState.STARTING)
    other = msgspec.structs.replace(make_spec("other", slo_ttft_s=9.0), service="other")
    assert submits(world.checked(submit_to(world.dispatcher, other, world.now))) == []
    assert [(to, submit.spec.id) for to, submit in submits(world.status(P1, services=("other",)))] == [(P1, "other")]


def test_prefixes_are_those_of_a_service():
    world = World(policy="elastic")
    for engine in (P0, P1):
        world.status(engine, services=(SERVICE, "other"), num_blocks=1000)
    first = only_submit(world.submit("first", 2 * PROMPT_BLOCK, slo_ttft_s=50.0))[0]
    world.submit("same", 2 * PROMPT_BLOCK, slo_ttft_s=50.0)
    other = msgspec.structs.replace(make_spec("other", 2 * PROMPT_BLOCK, slo_ttft_s=50.0), service="other")
    submit_to(world.dispatcher, other, world.now)
    cached = [world.dispatcher.timelines.of(id_).decisions[-1].seen.request.cached for id_ in ("same", "other")]
    assert cached == [{first: 2 * PROMPT_BLOCK}, {}]


def test_who_refuses_a_prompt_does_not_hold_it():
    world = World(policy="elastic")
    for engine in (P0, P1):
        world.status(engine, num_blocks=1000)
    first = only_submit(world.submit("first", 2 * PROMPT_BLOCK, slo_ttft_s=50.0))[0]
    world.refuse(first, "first", code=RefusalCode.NO_SLACK)
    world.submit("same", 2 * PROMPT_BLOCK, slo_ttft_s=50.0)
    [second] = world.dispatcher.timelines.of("same").decisions
    assert first not in second.seen.request.cached


def test_a_recovering_request_tells_why_it_waits_once():
    world = World(P0, policy="elastic")
    world.submit("r", 500, slo_ttft_s=1.0)
    world.accept(P0)
    world.tokens(P0, 0, 7)
    busy = {"prefill_remaining_s": 0.8, "prefills": [PendingPrefill(0.85, 0.8)]}
    world.status(P1, **busy)
    world.status(P0, incarnation=2, **busy)
    for _ in range(8):
        world.now += 0.02
        world.status(P0, incarnation=2, **busy)
        world.status(P1, **busy)
    verdicts = [type(one.decision) for one in world.dispatcher.timelines.of("r").decisions]
    assert verdicts[0] is Dispatch
    assert len(verdicts) <= 3, "not at each change"


def overload(world, num_requests, num_tokens=100, slo_ttft_s=4.0, incarnation=1):
    """One request in ten leaves the queue, the others wait."""
    refused = []
    for n in range(num_requests):
        effects = world.submit(f"o{n}", num_tokens, slo_ttft_s=slo_ttft_s)
        if n % 10 == 0:
            effects += world.status(P0, incarnation)
            for _, submit in submits(effects):
                world.tokens(P0, 0, 1, id_=submit.spec.id, epoch=submit.epoch, finish=STOP)
            world.status(P0, incarnation, **BUSY)
        effects += world.wait(0.01)
        refused += [(effect.request, effect.error) for effect in effects if isinstance(effect, Fail)]
    return refused


def test_in_overload_clients_are_told_before_their_deadlines():
    world = World(P0, D0, limits=DispatchLimits(max_requests=2000, max_waiting=2000, reply_s=9.0))
    world.status(P0, **BUSY)
    refused = overload(world, 390)
    assert world.now < 4.0, "before the first deadline"
    assert len(refused) > 50
    assert all(isinstance(error, Overloaded) and error.retry_after_s >= 1.0 for _, error in refused)
    assert world.dispatcher.num_waiting > 10


def test_what_had_begun_is_never_refused_to_make_room():
    world = World(P0, D0, limits=DispatchLimits(max_requests=2000, max_waiting=2000, reply_s=9.0))
    world.submit("begun", 1000, slo_ttft_s=4.0)
    world.accept(P0, "begun")
    world.tokens(P0, 0, 10, id_="begun")
    world.status(D0, num_free_blocks=50)
    world.status(P0, incarnation=2, **BUSY)
    assert world.dispatcher.num_waiting == 1, "it finds no room"
    refused = [request for request, _ in overload(world, 390, incarnation=2)]
    assert refused
    assert "begun" not in refused


# --- lengths and packing ----------------------------------------------------------------------------------------------


COST = DecodeCost(0.01, 0.001, 1e-5)


def sent_specs(effects):
    return [
        effect.message.spec
        for effect in effects
        if isinstance(effect, SendToEngine) and isinstance(effect.message, Submit)
    ]


def test_engines_are_told_how_long_answers_are_expected_to_be_if_the_policy_asks():
    assert sent_specs(World(P0, M0).submit("a"))[0].expected == ()
    world = World(M0, policy="packing")
    [spec] = sent_specs(world.submit("a"))
    assert spec.expected == (16,)
    world.accept(M0, "a")
    world.tokens(M0, 0, 1, 2, 3, id_="a", finish=STOP)
    [spec] = sent_specs(world.submit("b"))
    assert spec.expected == (round(0.75 * 3 + 0.25 * 16), 16)


def test_a_policy_that_is_switched_to_learns_of_what_waits():
    world = World(policy="tropical")
    world.submit("a")
    world.checked(world.dispatcher.switch(make_policy(PolicySpec("packing"), Random(0)), 0.0))
    [spec] = sent_specs(world.status(M0))
    assert spec.expected == (16,)


def test_what_has_not_begun_is_called_back_once_and_goes_where_it_was_meant_to():
    world = World(M0, policy="packing")
    assert world.submit("a", slo_ttft_s=9.0)[-1].to == M0
    world.accept(M0, "a")
    world.now += 1
    under = Demand(2, 20, 40, 0.1, ((9, 90),), -3, -60)
    over = Demand(3, 30, 60, 0.1, ((9, 90),), 3, 60)
    world.status(M1, demand=under, decode_cost=COST)
    world.now += 1
    effects = world.status(M0, demand=over, decode_cost=COST)
    assert effects == [SendToEngine(M0, Recall("a", Epoch(0, ANY_HOP)))]
    world.now += 1
    assert world.status(M0, demand=over, decode_cost=COST) == []
    effects = world.refuse(M0, "a", code=RefusalCode.RECALLED)
    assert [effect.to for effect in effects if isinstance(effect, SendToEngine)] == [M1]


def test_what_has_a_token_is_not_called_back():
    world = World(M0, policy="packing")
    world.submit("a")
    world.accept(M0, "a")
    world.tokens(M0, 0, 1, id_="a")
    world.now += 1
    world.status(M1, demand=Demand(2, 20, 40, 0.1, ((9, 90),), -3, -60), decode_cost=COST)
    world.now += 1
    assert world.status(M0, demand=Demand(3, 30, 60, 0.1, ((9, 90),), 3, 60), decode_cost=COST) == []


def test_engines_are_wanted_while_requests_fit_none():
    world = World(policy="packing")
    full = Demand(100, 2000, 2000, 0.1, ((9, 1600),))
    world.status(M0, demand=full, num_running=100, num_free_blocks=0)
    assert world.dispatcher.wanted(world.now) == []
    world.submit("a")
    assert world.dispatcher.wanted(world.now) == [Wanted(SERVICE, Role.MULTIPLEX, 1, 1)]
    world.status(M1)
    assert world.dispatcher.wanted(world.now) == []
