"""More than fits: who is told so, who waits, and what is called back."""

from mesh.wire.control import Role
from mesh.wire.requests import (
    Epoch,
    Recall,
    RefusalCode,
)
from mesh.wire.status import DecodeCost, Demand, PendingPrefill, Wanted
from router.effects import Fail, SendToEngine
from router.generation import Overloaded
from router.policies.policy import Dispatch
from router.requests.limits import DispatchLimits
from router.requests.request_state import ANY_HOP
from tests.router.cluster import D0, M0, M1, P0, P1, SERVICE
from tests.router.requests.dispatching import BUSY, STOP, World, submits


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
