"""Steps that fail, engines that hang or refuse again and again: where requests go next."""

import pytest

from mesh.wire.control import ProcessState
from mesh.wire.requests import (
    Cancel,
    Epoch,
    Failed,
    FailureCode,
    RefusalCode,
)
from router.generation import Fault
from router.requests.request_state import ANY_HOP
from tests.router.cluster import M0, M1, P0, make_status, sender_of
from tests.router.requests.dispatching import STOP, World, cancels, only_failure, only_submit, running_on, submits


def test_a_request_whose_step_fails_on_one_engine_goes_on_elsewhere():
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    to, submit = only_submit(world.receive(at, Failed("r", Epoch(0), "out of order")))
    assert (to, submit.epoch, submit.spec.generated) == (other, Epoch(1), [10, 11])


def test_a_request_whose_step_failed_waits_for_an_engine_that_has_not_failed_it():
    """The same one would fail it again, and then it would end."""
    world, at = running_on(M0, M1)
    other = M1 if at == M0 else M0
    world.status(other, num_free_blocks=0)
    assert not submits(world.receive(at, Failed("r", Epoch(0), "out of order")))
    assert not submits([*world.wait(0.2), *world.status(at)])
    assert only_submit(world.status(other))[0] == other


def test_a_request_whose_step_failed_goes_back_where_there_is_no_other_engine():
    world, at = running_on(M0)
    world.receive(at, Failed("r", Epoch(0), "out of order"))
    assert only_submit([*world.wait(1.0), *world.status(at)])[0] == at


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


def test_a_status_that_was_overtaken_takes_no_request_from_an_engine_that_goes_on():
    world, at = running_on(M0, M1)
    hung = make_status(at, world.seq, state=ProcessState.STUCK, error="a step of chat has been running for 9.0 s")
    world.status(at)
    assert world.dispatcher.observe(sender_of(at), hung, world.now) == []
    assert world.dispatcher._in_flight.get("r").engines == (at,)


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
