"""When the balancer of roles asks for a change, and for how long it keeps still."""

import pytest
from msgspec.structs import replace

from mesh.wire.control import EnginePlace, Role, SetRole
from router.policies.capabilities import RoleChange
from router.policies.parts.roles import DWELL_S, SHORTAGE_S, RoleBalancer
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_engine, make_view

BUSY = {"prefill_remaining_s": 0.5}
FULL = {"num_running": 9, "num_free_blocks": 5}
LIGHT = {"num_running": 3, "num_tokens": 50}


def changes(balancer, *engines, num_waiting=1, times):
    view, waiting = make_view(*engines), {SERVICE: num_waiting}
    return [change for now in times for change in balancer.rebalance(view, waiting, now)]


def test_a_decode_engine_takes_prefills_when_they_wait_and_it_can_be_spared():
    engines = make_engine(P0, **BUSY), make_engine(D0, **LIGHT), make_engine(D1, num_running=1, num_role_changes=4)
    asked = changes(RoleBalancer(), *engines, times=(0.0, SHORTAGE_S))
    assert asked == [RoleChange(D1, SetRole(Role.PREFILL, 4, 0))]


@pytest.mark.parametrize(
    "engines",
    [
        (make_engine(P0), make_engine(D0), make_engine(D1)),
        (make_engine(P0, **BUSY), make_engine(D0)),
        (make_engine(P0, **BUSY), make_engine(D0, **FULL), make_engine(D1)),
    ],
    ids=["a prefill engine is idle", "the last decode engine", "the others are full"],
)
def test_none_takes_prefills_otherwise(engines):
    assert changes(RoleBalancer(), *engines, times=(0.0, SHORTAGE_S, 99.0)) == []


def test_an_idle_prefill_engine_decodes_when_all_others_are_full():
    engines = make_engine(P0, **BUSY), make_engine(P1), make_engine(D0, **FULL), make_engine(M0, **FULL)
    asked = changes(RoleBalancer(), *engines, num_waiting=0, times=(0.0, SHORTAGE_S))
    assert asked == [RoleChange(P1, SetRole(Role.MULTIPLEX, 0, 0))]


def test_a_decode_step_close_to_its_promise_is_full():
    slow = make_engine(D0, num_running=2, min_slack_s=0.1, decode_step_s=0.085, min_tpot_slo_s=0.1)
    assert len(changes(RoleBalancer(), make_engine(P0), make_engine(P1), slow, times=(0.0, SHORTAGE_S))) == 1
    assert changes(RoleBalancer(), make_engine(P0), slow, times=(0.0, SHORTAGE_S)) == [], "one prefill engine stays"


def test_of_a_decode_step_only_what_grows_with_the_batch_fills_an_engine():
    """Steps take 10 ms at least, and are to take 10.8 of 12: an engine at 10.2 is less than a quarter full."""
    tight = {"num_running": 2, "min_slack_s": 0.1, "min_tpot_slo_s": 0.012}
    engines = [make_engine(P0, **BUSY), *(make_engine(id_, **tight, decode_step_s=0.01018) for id_ in (D0, D1, M0))]
    assert len(changes(RoleBalancer(), *engines, times=(0.0, SHORTAGE_S))) == 1
    engines[1:] = [make_engine(id_, **tight, decode_step_s=0.0104) for id_ in (D0, D1, M0)]
    assert changes(RoleBalancer(), *engines, times=(0.0, SHORTAGE_S)) == []


def test_the_others_must_bear_the_decodes_of_one_more_prefill_engine():
    """Two of three are left for what twice as many prefills bring: a quarter of each may be in use, not a half."""
    for num_free_blocks, count in ((76, 1), (74, 0)):
        decoding = [make_engine(id_, num_running=3, num_free_blocks=num_free_blocks) for id_ in (D0, D1, M0)]
        assert len(changes(RoleBalancer(), make_engine(P0, **BUSY), *decoding, times=(0.0, SHORTAGE_S))) == count


def test_a_passing_shortage_changes_nothing():
    balancer = RoleBalancer()
    short = make_engine(P0), make_engine(P1), make_engine(D0, **FULL)
    assert changes(balancer, *short, times=(0.0, 0.6 * SHORTAGE_S)) == []
    assert changes(balancer, make_engine(P0), make_engine(P1), make_engine(D0), times=(0.7 * SHORTAGE_S,)) == []
    assert changes(balancer, *short, times=(0.8 * SHORTAGE_S, 1.7 * SHORTAGE_S)) == []
    assert changes(balancer, *short, times=(9 * SHORTAGE_S,)) == [], "nobody knows what was in between"


def test_one_more_prefill_engine_is_given_time():
    balancer = RoleBalancer()
    short = make_engine(P0, **BUSY), make_engine(D0), make_engine(D1), make_engine(M0)
    assert len(changes(balancer, *short, times=(0.0, SHORTAGE_S, 2 * SHORTAGE_S, DWELL_S))) == 1
    assert len(changes(balancer, *short, times=(DWELL_S + SHORTAGE_S,))) == 1


def test_full_decode_engines_get_help_until_one_of_them_is_not():
    balancer = RoleBalancer()
    full = [make_engine(P0), make_engine(P1), make_engine(D0, **FULL)]
    assert len(changes(balancer, *full, times=(0.0, SHORTAGE_S, 1.5 * SHORTAGE_S))) == 1
    assert len(changes(balancer, *full, times=(2.5 * SHORTAGE_S, 3 * SHORTAGE_S))) == 1
    assert changes(balancer, *full, make_engine(M1), times=(4 * SHORTAGE_S, 99.0)) == []


def test_a_change_is_not_undone_at_once():
    balancer = RoleBalancer()
    waiting = make_engine(P0, **BUSY), make_engine(D0), make_engine(D1)
    assert len(changes(balancer, *waiting, times=(0.0, SHORTAGE_S))) == 1
    full = make_engine(P0), make_engine(P1), make_engine(D0, **FULL)
    looks = [SHORTAGE_S * (1 + step / 2) for step in range(20)]
    assert changes(balancer, *full, times=[now for now in looks if now < DWELL_S + SHORTAGE_S]) == []
    assert changes(balancer, *full, times=[now for now in looks if now >= DWELL_S + SHORTAGE_S])


def test_another_gateways_change_counts():
    balancer = RoleBalancer()
    short = [make_engine(P0, **BUSY), make_engine(D0), make_engine(D1), make_engine(M0)]
    assert changes(balancer, *short, times=(0.0,)) == []
    short[1] = replace(short[1], role=Role.PREFILL, num_prefills=1)
    assert changes(balancer, *short, times=(0.5, DWELL_S - SHORTAGE_S / 2, DWELL_S)) == []
    assert len(changes(balancer, *short, times=(DWELL_S + 0.5 * SHORTAGE_S,))) == 1


def placed(number, *services, role=Role.MULTIPLEX):
    return {"place": EnginePlace(number, 4, services, role)}


def test_pools_that_share_no_service_are_balanced_apart():
    """An idle prefill engine of one service is no help to another, and both may be short at once."""
    balancer = RoleBalancer()
    chat = make_engine(P0, **BUSY), make_engine(D0, **LIGHT), make_engine(D1)
    code = (
        make_engine("prefill-2", services=["code"]),
        make_engine("prefill-3", services=["code"]),
        make_engine("decode-2", services=["code"], **FULL),
    )
    asked = changes(balancer, *chat, *code, times=(0.0, SHORTAGE_S))
    assert {change.engine: change.message.role for change in asked} == {
        D1: Role.PREFILL,
        "prefill-3": Role.MULTIPLEX,
    }


def test_the_last_engine_that_decodes_one_of_its_services_keeps_its_role():
    engines = make_engine(P0, **BUSY), make_engine(D0, **LIGHT), make_engine(D1, services=[SERVICE, "code"])
    assert [change.engine for change in changes(RoleBalancer(), *engines, times=(0.0, SHORTAGE_S))] == [D0]


def test_an_engine_that_a_service_is_to_leave_does_not_count_as_one_that_decodes_it():
    """The plan takes the service from one, so the other one is needed."""
    leaving, staying = (
        make_engine(D0, **placed(3, "code"), services=[SERVICE, "code"]),
        make_engine(D1, **placed(3, SERVICE)),
    )
    assert changes(RoleBalancer(), make_engine(P0, **BUSY), leaving, staying, times=(0.0, SHORTAGE_S, 9.0)) == []


def test_a_new_plan_is_given_time_and_its_number_goes_with_a_change():
    balancer = RoleBalancer()
    before = make_engine(P0, **BUSY), make_engine(D0, **LIGHT), make_engine(D1)
    assert changes(balancer, *before, times=(0.0, 0.9 * SHORTAGE_S)) == []
    after = [make_engine(P0, **BUSY), *(make_engine(id_, **placed(3, SERVICE)) for id_ in (D0, D1))]
    assert changes(balancer, *after, times=(SHORTAGE_S, 2 * SHORTAGE_S, 3 * SHORTAGE_S, 4 * SHORTAGE_S)) == []
    [change] = changes(balancer, *after, times=(5 * SHORTAGE_S, SHORTAGE_S + DWELL_S))
    assert change.message == SetRole(Role.PREFILL, 0, 3)


def test_an_engine_with_static_batches_keeps_its_role():
    engines = make_engine(P0, **BUSY), make_engine(D0, **LIGHT), make_engine(D1, keeps_role=True)
    assert [change.engine for change in changes(RoleBalancer(), *engines, times=(0.0, SHORTAGE_S))] == [D0]
