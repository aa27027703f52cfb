"""Requests that say whether a late answer is better than none, as their gateway treats them."""

import pytest

from mesh.rules import Lateness
from mesh.wire.requests import Cancel, Submit
from mesh.wire.status import PendingPrefill
from router.effects import Fail, SendToEngine
from router.generation import Overloaded
from tests.router.cluster import M0, P0
from tests.router.requests.dispatching import World

URGENT = PendingPrefill(60.0, 50.0, priority=5)
BUSY = {"prefill_remaining_s": 50.0, "num_waiting": 1, "prefills": [URGENT]}
IDLE = {"prefill_remaining_s": 0.0, "num_waiting": 0, "prefills": []}


def world_with(late: Lateness | None, policy: str = "tropical", **engines: object) -> World:
    """One request with a promise of a second, on an engine that has accepted it."""
    world = World(P0, M0, policy=policy)
    world.submit(slo_ttft_s=1.0, late=late)
    world.accept(P0)
    return world


def fails(effects: list[object]) -> list[Fail]:
    return [effect for effect in effects if isinstance(effect, Fail)]


def test_one_that_rejects_lateness_is_taken_from_its_engine_once_its_promise_is_over_twice():
    world = world_with(Lateness.REJECT)
    assert fails(world.wait(1.9)) == []
    effects = world.wait(0.5)
    [fail] = fails(effects)
    assert isinstance(fail.error, Overloaded)
    assert "promised in 1 s" in str(fail.error)
    assert [one.to for one in effects if isinstance(one, SendToEngine) and isinstance(one.message, Cancel)]


@pytest.mark.parametrize("late", [None, Lateness.SERVE])
def test_others_stay_with_their_engine(late: Lateness | None):
    assert fails(world_with(late).wait(30.0)) == []


def test_what_has_begun_is_never_refused_for_being_late():
    world = world_with(Lateness.REJECT)
    world.tokens(P0, 0, 7)
    assert fails(world.wait(30.0)) == []


@pytest.mark.parametrize(("late", "num_refused"), [(None, 1), (Lateness.REJECT, 1), (Lateness.SERVE, 0)])
@pytest.mark.parametrize("policy", ["tropical", "elastic", "foresight", "packing"])
def test_one_that_serves_lateness_waits_in_the_gateway_beyond_its_promise(
    policy: str, late: Lateness | None, num_refused: int
):
    world = World(policy=policy)
    world.status(P0, **BUSY)
    effects = world.submit(slo_ttft_s=1.0, late=late)
    effects += world.wait(20.0)
    assert len(fails(effects)) == num_refused
    if late is Lateness.SERVE:
        sent = [one for one in world.status(P0, **IDLE) if isinstance(one, SendToEngine)]
        assert [type(one.message) for one in sent] == [Submit], "late, but an engine has nothing else to do"
