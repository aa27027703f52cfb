from random import Random

import pytest

from mesh.topology.schema import PolicySpec
from mesh.wire.requests import Accepted, Epoch, FinishReason, Recall, StepTokens, Submit
from router.effects import Fail, SendToEngine
from router.generation import Overloaded
from router.history.timelines import Timelines
from router.policies.policy import Dispatch
from router.policies.registry import make_policy
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.requests.overload.fairness import ABOUT_S, Fairness, SharedEngines
from router.requests.request_state import RequestPhase
from router.view.monitor import Monitor
from tests.router.cluster import M0, M1, make_delta, make_in_flight, make_spec, make_status, sender_of, submit_to

TO_M0 = Dispatch(M0, M0, "test", 0.1, 0.1)


def engines(num_places):
    return SharedEngines({M0}, {M0}, num_places)


def request(id_, tenant, priority=0, num_tokens=10):
    return make_in_flight(make_spec(id_, num_tokens, priority=priority), tenant=tenant)


def names(in_flight):
    return [one.id for one in in_flight]


@pytest.fixture
def fairness():
    fairness = Fairness()
    for tenant in ("a", "b"):
        fairness.arrived(tenant, 0.0)
    return fairness


def test_tenants_go_in_turns(fairness):
    waiting = [request(f"a{n}", "a") for n in range(3)] + [request("b0", "b")]
    assert names(fairness.in_turn(waiting)) == ["a0", "b0", "a1", "a2"]


def test_one_tenant_keeps_the_policys_order(fairness):
    waiting = [request(f"a{n}", "a") for n in (2, 0, 1)]
    assert fairness.in_turn(waiting) is waiting


def test_priority_goes_before_fairness(fairness):
    waiting = [request("a0", "a", priority=1), request("a1", "a", priority=1), request("b0", "b")]
    assert names(fairness.in_turn(waiting)) == ["a0", "a1", "b0"]


def test_a_long_prompt_counts_as_much_as_many_short_ones(fairness):
    waiting = [request("a0", "a", num_tokens=35), request("a1", "a")] + [request(f"b{n}", "b") for n in range(5)]
    assert names(fairness.in_turn(waiting)) == ["a0", "b0", "b1", "b2", "b3", "a1", "b4"]


def test_who_was_served_goes_later(fairness):
    served = request("a0", "a", num_tokens=50)
    fairness.add(served)
    fairness.dispatched(served, TO_M0)
    waiting = [request("a1", "a"), request("b0", "b"), request("b1", "b")]
    assert names(fairness.in_turn(waiting)) == ["b0", "b1", "a1"]


def test_nobody_saves_up(fairness):
    """A tenant that was silent for long starts where the others are."""
    busy = request("a0", "a", num_tokens=1000)
    fairness.add(busy)
    fairness.dispatched(busy, TO_M0)
    fairness.arrived("c", 100 * ABOUT_S)
    waiting = [*(request(f"c{n}", "c") for n in range(4)), request("a1", "a"), request("a2", "a")]
    assert names(fairness.in_turn(waiting)) == ["c0", "a1", "c1", "a2", "c2", "c3"]


def test_what_had_begun_does_not_wait_for_others(fairness):
    begun = request("a1", "a")
    begun.losses.is_recovering = True
    waiting = [request("b0", "b"), request("a0", "a"), begun]
    assert names(fairness.in_turn(waiting)) == ["a1", "b0", "a0"]


def test_tenants_are_forgotten_and_their_number_is_bounded():
    fairness = Fairness()
    for number in range(20_000):
        fairness.arrived(f"t{number}", number / 100)
    assert len(fairness._tenants) <= 100 * (ABOUT_S + 2)
    assert len(fairness._former) <= 4096


class World:
    def __init__(self, **limits):
        self.now = 0.0
        self.seq = 0
        limits = DispatchLimits(**{"max_requests": 64, "max_waiting": 8, "reply_s": 100.0} | limits)
        self.dispatcher = Dispatcher(
            make_policy(PolicySpec("round_robin"), Random(0)), Monitor(1e9), limits, Timelines()
        )
        self.sent, self.recalled = [], []

    def status(self, **numbers):
        self.seq += 1
        self.take(self.dispatcher.observe(sender_of(M0), make_status(M0, self.seq, **numbers), self.now))

    def submit(self, id_, tenant):
        return self.take(submit_to(self.dispatcher, make_spec(id_, 400), self.now, tenant))

    def take(self, effects):
        messages = [effect.message for effect in effects if isinstance(effect, SendToEngine) and effect.to == M0]
        self.sent += [message.spec.id for message in messages if isinstance(message, Submit)]
        self.recalled += [message.request for message in messages if isinstance(message, Recall)]
        self.dispatcher.check_invariants()
        return [effect for effect in effects if isinstance(effect, Fail)]


def test_alone_a_tenant_may_fill_the_engines():
    world = World()
    world.status(num_blocks=10_000)
    for number in range(20):
        world.submit(f"a{number}", "a")
    assert len(world.sent) == 20


def test_beside_another_one_it_may_not():
    world = World(max_waiting=64)
    world.status(num_blocks=10_000)
    world.submit("b", "b")
    for number in range(20):
        world.submit(f"a{number}", "a")
    assert world.sent == ["b", "a0"]
    world.submit("b1", "b")
    assert world.dispatcher.num_waiting == 20


def test_what_a_flood_had_sent_before_another_one_came_is_called_back():
    world = World()
    world.status(num_blocks=10_000)
    for number in range(5):
        world.submit(f"a{number}", "a")
        world.take(world.dispatcher.receive(M0, Accepted(f"a{number}", Epoch(0), world.seq + 1), 0.0))
    assert world.recalled == []
    world.submit("b", "b")
    assert world.recalled == ["a4", "a3", "a2", "a1"]
    world.submit("b1", "b")
    assert len(world.recalled) == 4


def test_the_next_one_goes_when_one_has_begun():
    world = World(max_waiting=64)
    world.status(num_blocks=10_000)
    world.submit("b", "b")
    for number in range(3):
        world.submit(f"a{number}", "a")
    world.take(world.dispatcher.receive(M0, StepTokens([make_delta(0, 5, id_="a0")]), world.now))
    assert world.sent == ["b", "a0", "a1"]


def test_a_full_queue_makes_room_for_who_has_less_in_it():
    world = World()
    for number in range(8):
        world.submit(f"a{number}", "a")
    with pytest.raises(Overloaded):
        world.submit("a8", "a")
    [failed] = world.submit("b0", "b")
    assert (failed.request, isinstance(failed.error, Overloaded)) == ("a7", True)
    for number in (1, 2, 3):
        world.submit(f"b{number}", "b")
    with pytest.raises(Overloaded):
        world.submit("b4", "b")


def test_the_last_places_are_not_for_who_has_its_share():
    world = World(max_requests=16, max_waiting=100)
    world.submit("b0", "b")
    for number in range(13):
        world.submit(f"a{number}", "a")
    with pytest.raises(Overloaded):
        world.submit("a13", "a")
    assert world.submit("b1", "b") == []


def test_a_request_that_ended_is_counted_to_its_end(fairness):
    one = request("a0", "a")
    fairness.add(one)
    fairness.dispatched(one, TO_M0)
    one.stream.start_attempt(0)
    one.stream.take(make_delta(0, 1, 2, 3, id_="a0", finish=FinishReason.STOP), 0.0)
    fairness.remove(one)
    assert fairness._tenants["a"].served == 10 + 2 * 3


def test_many_small_requests_and_not_one_long_prompt_are_refused_when_not_all_can_be_served(fairness):
    waiting = [request("b0", "b", num_tokens=1000), *(request(f"a{n}", "a") for n in range(50))]
    assert fairness.above_their_share(waiting) == set()
    assert fairness.above_their_share(waiting[1:]) == {"a"}
    assert fairness.above_their_share([request("b0", "b", num_tokens=100), *waiting[1:]]) == {"a"}


def running(fairness, id_, tenant, engine=M0):
    one = request(id_, tenant)
    one.assignment.phase, one.assignment.engines = RequestPhase.RUNNING, (engine,)
    fairness.add(one)
    return one


def test_who_has_its_share_leaves_the_last_places_in_decode_batches_to_others(fairness):
    """Its answers are long: nobody else would find a place until one of them ends."""
    fairness.count([running(fairness, f"a{n}", "a") for n in range(8)])
    assert fairness.holds(request("a8", "a"), engines(16))
    assert not fairness.holds(request("b0", "b"), engines(16))
    assert not fairness.holds(request("a12", "a"), engines(0)), "nobody knows how many there are"


def test_places_are_taken_while_more_are_left(fairness):
    fairness.count([running(fairness, f"a{n}", "a") for n in range(7)])
    assert not fairness.holds(request("a7", "a"), engines(16))


def test_places_on_other_engines_are_not_places_here(fairness):
    fairness.count([running(fairness, f"a{n}", "a", M1) for n in range(8)])
    assert not fairness.holds(request("a8", "a"), engines(16))
    assert fairness.holds(request("a8", "a"), SharedEngines({M1}, {M1}, 16))


def test_prompts_that_wait_at_other_engines_hold_nothing_here(fairness):
    """A burst for one service is no reason to let engines of another one stand idle."""
    for number in range(9):
        fairness.dispatched(request(f"a{number}", "a"), Dispatch(M1, M1, "test", 0.1, 0.1))
    assert fairness.holds(request("a9", "a"), SharedEngines({M1}, {M1}, 0))
    assert fairness.holds(request("a9", "a"), SharedEngines({M0, M1}, {M0, M1}, 0))
    assert not fairness.holds(request("a9", "a"), engines(0))
