from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState
from mesh.wire.requests import (
    Cancel,
    Epoch,
    RefusalCode,
    Submit,
)
from mesh.wire.status import PendingPrefill
from router.effects import Deliver, Fail, SendToEngine, SetRoute
from router.generation import Fault, NoEngines, Overloaded, RequestFailed
from router.history.records import PROMPT_BLOCK
from router.policies.registry import make_policy
from router.requests.limits import DispatchLimits
from router.requests.request_state import ANY_HOP
from router.requests.routing import TRIES_PER_ROUND
from tests.router.cluster import D0, M0, M1, P0, P1, SERVICE, make_spec, submit_to
from tests.router.requests.dispatching import BUSY, LIMITS, STOP, World, cancels, only_failure, only_submit, submits


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


AnyOrder.TestCase.settings = settings(stateful_step_count=30)


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
