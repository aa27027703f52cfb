"""What an engine gives back at the end of a slice goes on, with its tokens, in another round."""

from mesh.wire.requests import Epoch, RefusalCode, SlicesEnded, SubmitBatch
from router.effects import Fail, SendToEngine
from router.policies.capabilities import PlansRounds
from router.requests.in_flight_request import LOOK_S
from tests.router.cluster import M0, M1, sender_of
from tests.router.requests.dispatching import LIMITS, STOP, World, only_submit


def batches(effects):
    return [
        (e.to, e.message.submits) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, SubmitBatch)
    ]


def ended(*requests, attempt=0):
    return SlicesEnded([(request, Epoch(attempt)) for request in requests])


def test_one_round_sends_a_batch_as_one_message():
    world = World(M0, M1, policy="slices")
    ((_, [first]),) = batches(world.submit("r0", slo_ttft_s=50.0))
    assert (first.spec.id, first.slice_tokens) == ("r0", 128)
    world.accept(M0, "r0")
    for name in ("r1", "r2", "r3"):
        assert batches(world.submit(name, slo_ttft_s=50.0)) == []
    ((engine, submits),) = batches(world.wait(3.0))
    assert [submit.spec.id for submit in submits] == ["r1", "r2", "r3"]
    assert engine == M1


def test_a_request_comes_back_with_its_tokens():
    world = World(M0, policy="slices")
    world.submit("r0", slo_ttft_s=50.0)
    world.accept(M0, "r0")
    world.tokens(M0, 0, 7, 8, id_="r0")
    assert batches(world.receive(M0, ended("r0"))) == []
    ((_, [again]),) = batches(world.wait(3.0))
    assert (again.spec.generated, again.epoch) == ([7, 8], Epoch(1))
    world.accept(M0, "r0", attempt=1)
    world.tokens(M0, 2, 9, id_="r0", epoch=(1, 0), finish=STOP)
    assert world.dispatcher.num_requests == 0


def test_the_end_of_an_earlier_slice_that_comes_late_changes_nothing():
    world = World(M0, policy="slices")
    world.submit("r0", slo_ttft_s=50.0)
    world.accept(M0, "r0")
    world.tokens(M0, 0, 7, id_="r0")
    world.receive(M0, ended("r0"))
    world.wait(3.0)
    world.receive(M0, ended("r0"))
    assert world.dispatcher.num_waiting == 0


def test_what_is_refused_leaves_its_batch():
    world = World(M0, M1, policy="slices")
    world.submit("r0", slo_ttft_s=50.0)
    world.refuse(M0, "r0", code=RefusalCode.FULL)
    assert world.dispatcher._routing.policy._loads.of(M0) == 0.0
    ((engine, _),) = batches(world.wait(3.0))
    assert engine in (M0, M1)


def test_an_engine_that_dies_gives_its_load_back():
    world = World(M0, M1, policy="slices", lease_s=1.0)
    world.submit("r0", slo_ttft_s=50.0)
    policy = world.dispatcher._routing.policy
    assert policy._loads.of(M0) > 0
    world.now = 0.9
    world.status(M1)
    world.wait(0.5)
    assert policy._loads.of(M0) == 0.0


# --- what has begun is not refused ------------------------------------------------------------------------------------


def world_with_begun(*engines, opens_at, slo_ttft_s=1.0):
    """One request has tokens of its first slice, and the next round of batching is far."""
    world = World(*engines, policy="slices", lease_s=10_000.0)
    ((engine, _),) = batches(world.submit("begun", slo_ttft_s=slo_ttft_s))
    world.accept(engine, "begun")
    world.tokens(engine, 0, 7, 8, id_="begun")
    world.dispatcher._routing.policy.offers(PlansRounds).opens_at = opens_at
    return world, engine


def failures(effects):
    return [effect.request for effect in effects if isinstance(effect, Fail)]


def test_a_request_waits_for_its_next_slice_as_long_as_an_engine_could_run_it():
    world, engine = world_with_begun(M0, opens_at=200.0)
    world.receive(engine, ended("begun"))
    assert world.wait(199.0) == [], "its promise and the time to recover are long over"
    ((_, [again]),) = batches(world.wait(1.0))
    assert (again.spec.generated, again.slice_tokens) == ([7, 8], 128)


def test_but_not_for_ever():
    world, engine = world_with_begun(M0, opens_at=5000.0)
    world.receive(engine, ended("begun"))
    assert failures(world.wait(LIMITS.patience_s)) == []
    assert failures(world.wait(2.0)) == ["begun"]


def test_when_no_engine_is_left_it_waits_for_one_until_its_time_to_recover_is_over():
    world, engine = world_with_begun(M0, opens_at=5000.0)
    world.receive(engine, ended("begun"))
    assert world.wait(100.0) == []
    world.checked(world.dispatcher.declare_dead(sender_of(M0), world.now))
    assert failures(world.wait(LIMITS.recovery_s - LOOK_S)) == []
    assert failures(world.wait(LOOK_S)) == ["begun"]


def test_an_engine_that_is_too_small_for_it_is_none():
    world, engine = world_with_begun(M0, opens_at=5000.0)
    world.receive(engine, ended("begun"))
    world.status(M0, num_blocks=4, num_free_blocks=4)
    assert failures(world.wait(1.0 + LIMITS.recovery_s)) == ["begun"]


def test_what_lost_its_engine_waits_for_no_round():
    world, engine = world_with_begun(M0, M1, opens_at=5000.0)
    other = M1 if engine == M0 else M0
    ((to, [submit]),) = batches(world.checked(world.dispatcher.declare_dead(sender_of(engine), world.now)))
    assert (to, submit.spec.generated) == (other, [7, 8])


def test_what_was_refused_its_next_slice_waits_for_no_round_and_keeps_its_place():
    world, engine = world_with_begun(M0, opens_at=0.0)
    ((_, [again]),) = batches(world.receive(engine, ended("begun")))
    world.dispatcher._routing.policy.offers(PlansRounds).opens_at = 5000.0
    promised = world.dispatcher._in_flight.get("begun").deadline.at
    for attempt in range(1, 30):
        world.refuse(M0, "begun", attempt)
        assert world.dispatcher._in_flight.get("begun").deadline.at == promised
        to, again = only_submit(world.wait(1.0))
        assert (to, again.spec.generated) == (M0, [7, 8])
