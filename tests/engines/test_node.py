"""The engine's state machine: membership, whom it follows, turns, steps that fail, and how it ends."""

from dataclasses import replace

import pytest

from engines.effects import CloseMemory, Compute, EndTurn, Exit, Recover, Refuse
from engines.node import MAX_LAG_S
from engines.requests import REMIND_S
from engines.step_failures.errors import MOST_IN_A_ROW, StepError
from mesh.effects import Follow, Forget, Publish, Rest
from mesh.membership.catching_up import MAX_CATCH_UPS
from mesh.topology.schema import Rescheduling
from mesh.wire.control import Drain, ProcessState, Role, SetRole
from mesh.wire.frames import Sender
from mesh.wire.requests import Cancel, Epoch, Failed, Held, Holding, Probe, ProbeQuestion, RefusalCode, Refused, Submit
from mesh.wire.status import ChildStatus, SupervisorStatus
from mesh.wire.transfers import Declined, Reserve, Reserved
from tests.engines.conftest import MakeSpec
from tests.engines.node_driver import GATEWAY, OTHER, SUPERVISOR, TIMING, TOPOLOGY, NodeDriver, messages, those
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import SERVICE, SHAPE


@pytest.fixture
def engine() -> NodeDriver:
    return NodeDriver()


@pytest.fixture
def computing(engine: NodeDriver, make_spec: MakeSpec) -> tuple[NodeDriver, Compute]:
    """An engine with its only request's first step running."""
    engine.submit(make_spec("r", max_tokens=2))
    [compute] = those(Compute, engine.end_turn())
    return engine, compute


# --- whom it hears ----------------------------------------------------------------------------------------------------


def test_it_follows_gateways_and_supervisors_first(engine: NodeDriver):
    [follow] = those(Follow, engine.started)
    assert {"gateway", "second", "supervisor-local"} <= follow.processes
    assert not {"engine", "other", "third"} & follow.processes
    assert those(Publish, engine.started)


def test_it_follows_an_engine_that_it_hears_from_once(engine: NodeDriver):
    first = engine.receive(Probe([]), OTHER)
    assert those(Follow, first) == [Follow(frozenset({"other"}))]
    assert not those(Follow, engine.receive(Probe([]), OTHER))


def test_it_follows_an_engine_before_it_writes_to_it(engine: NodeDriver, make_spec: MakeSpec):
    effects = engine.receive(Submit(make_spec("r"), Epoch(1), "other"))
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds.index("Follow") < kinds.index("Send")
    assert those(Follow, effects) == [Follow(frozenset({"other"}))]


def test_it_follows_all_engines_while_it_is_emptied(engine: NodeDriver):
    effects = engine.receive(Drain(undo=False), Sender("mesh", 1))
    assert those(Follow, effects) == [Follow(frozenset({"other", "third"}))]


def test_by_rules_it_hears_its_neighbours_and_all_only_while_it_is_emptied():
    rules = Rescheduling(neighbours=2)
    engine = NodeDriver(replace(TOPOLOGY, engines=TOPOLOGY.engines[::-1], rescheduling=rules), rules)
    [near] = {"other", "third"} & frozenset().union(*(follow.processes for follow in those(Follow, engine.started)))
    [far] = {"other", "third"} - {near}
    assert engine.node.reads(near)
    assert not engine.node.reads(far)
    assert those(Follow, engine.receive(Drain(undo=False), Sender("mesh", 1))) == [Follow(frozenset({far}))]
    assert engine.node.reads(far)
    engine.receive(Drain(undo=True), Sender("mesh", 1))
    assert not engine.node.reads(far)


def test_it_refuses_what_a_process_may_not_say(engine: NodeDriver, make_spec: MakeSpec):
    message = Submit(make_spec("r", gateway="second"), Epoch(1))
    [refused] = engine.receive(message)
    assert isinstance(refused, Refuse)
    assert refused.sender == GATEWAY


# --- who dies ---------------------------------------------------------------------------------------------------------


def test_a_gateway_that_falls_silent_gets_its_requests_back(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    effects = engine.pass_time(TIMING.lease_s)
    [refused] = messages(effects)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.GATEWAY_SILENT
    assert not those(Forget, effects)  # it may live, and wants to be told
    assert those(CloseMemory, effects) == [CloseMemory("gateway")]


def test_signs_of_life_keep_a_lease(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    engine.pass_time(0.9 * TIMING.lease_s)
    engine.node.hear(GATEWAY, None, engine.now)
    assert not messages(engine.pass_time(1.5 * TIMING.lease_s))


def test_an_engine_that_was_lost_is_not_asked_to_take_requests_until_it_is_heard(
    engine: NodeDriver, make_spec: MakeSpec
):
    """The gateway may hear it, and would else wait for an answer that cannot come."""
    engine.node.hear(OTHER, None, engine.now)
    engine.node.hear(GATEWAY, None, engine.now + 0.5 * TIMING.lease_s)
    engine.pass_time(TIMING.lease_s)
    _, refused = messages(engine.receive(Submit(make_spec("r"), Epoch(1), "other")))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PEER_SILENT
    assert engine.core.is_idle
    engine.node.hear(OTHER, None, engine.now)
    _, reserve = messages(engine.receive(Submit(make_spec("r"), Epoch(2), "other")))
    assert isinstance(reserve, Reserve)


def test_an_engine_that_was_started_again_is_asked(engine: NodeDriver, make_spec: MakeSpec):
    engine.node.hear(OTHER, None, engine.now)
    engine.node.hear(OTHER._replace(incarnation=2), None, engine.now)
    _, reserve = messages(engine.receive(Submit(make_spec("r"), Epoch(1), "other")))
    assert isinstance(reserve, Reserve)


def death(process: str, incarnation: int) -> SupervisorStatus:
    child = ChildStatus(process, "gateway", None, "running", 0, ended_incarnation=incarnation)
    return SupervisorStatus(1, "local", 0, [child])


def test_a_death_notice_ends_requests_at_once(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    effects = engine.node.hear(SUPERVISOR, death("gateway", 1), engine.now)
    assert [type(message) for message in messages(effects)] == [Refused]
    assert those(Forget, effects) == [Forget("gateway")]
    assert engine.core.is_idle


@pytest.mark.parametrize("supervisor", [SUPERVISOR, Sender("supervisor-elsewhere", 1)], ids=str)
def test_a_death_notice_counts_once_and_from_its_own_supervisor(
    engine: NodeDriver, make_spec: MakeSpec, supervisor: Sender
):
    engine.submit(make_spec("r"))
    heard = [engine.node.hear(supervisor, death("gateway", 1), engine.now) for _ in range(2)]
    assert [bool(messages(effects)) for effects in heard] == [supervisor == SUPERVISOR, False]


def test_what_a_dead_incarnation_said_changes_nothing(engine: NodeDriver, make_spec: MakeSpec):
    engine.receive(Probe([]))
    engine.node.hear(SUPERVISOR, death("gateway", 1), engine.now)
    assert engine.submit(make_spec("r")) == []
    assert engine.core.is_idle


def test_a_restarted_gateway_loses_what_it_had(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    effects = engine.node.hear(Sender("gateway", 2), None, engine.now)
    assert those(Forget, effects) == [Forget("gateway")]
    assert engine.core.is_idle


def test_a_gateway_known_from_another_engine_has_a_lease(engine: NodeDriver, make_spec: MakeSpec):
    """The death of one that was never heard would not be noticed."""
    memory = VirtualMesh().add("other").core._services[SERVICE].memory
    spec = make_spec("r", gateway="second")
    engine.receive(Reserve("t", spec, Epoch(1, 1), 8, SHAPE, memory, deadline_s=60.0), OTHER)
    engine.node.hear(OTHER, None, engine.now + 0.9)
    effects = engine.pass_time(TIMING.lease_s + 0.01)
    assert CloseMemory("second") in effects


def test_gateways_are_reminded_of_what_waits(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    reminders = []
    while engine.now < 2.5 * REMIND_S:
        engine.node.hear(GATEWAY, None, engine.now)
        sent = messages(engine.pass_time(engine.now + TIMING.heartbeat_s))
        reminders += [(engine.now, one) for one in sent if isinstance(one, Held)]
    assert [held.requests for _, held in reminders] == 2 * [[Holding("r", 1, 0)]]
    assert reminders[1][0] - reminders[0][0] >= REMIND_S


def test_a_process_that_was_held_up_hears_others_first(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    engine.now = 3 * TIMING.lease_s  # it was held up: its timer comes late
    assert not messages(engine.node.expire(engine.now))
    engine.node.hear(GATEWAY, None, engine.now)
    assert not messages(engine.pass_time(engine.now + 0.9 * TIMING.lease_s))


def test_a_process_that_is_held_up_again_and_again_finds_the_dead_at_last(engine: NodeDriver, make_spec: MakeSpec):
    engine.submit(make_spec("r"))
    found = []
    for _ in range(MAX_CATCH_UPS + 1):
        engine.now += 3 * TIMING.lease_s
        found.append(any(isinstance(one, Refused) for one in messages(engine.node.expire(engine.now))))
    assert found == [False] * MAX_CATCH_UPS + [True]
    assert engine.now > MAX_LAG_S


# --- turns and statuses -----------------------------------------------------------------------------------------------


def test_many_messages_of_a_turn_lead_to_one_batch(engine: NodeDriver, make_spec: MakeSpec):
    effects = [*engine.submit(make_spec("a")), *engine.submit(make_spec("b"))]
    assert len(those(EndTurn, effects)) == 1
    turn = engine.end_turn()
    assert len(those(Compute, turn)) == len(those(Publish, turn)) == 1


def test_a_question_changes_nothing(engine: NodeDriver):
    engine.end_turn()
    engine.status()
    assert engine.receive(Probe([])) == []


def test_statuses_come_each_heartbeat(engine: NodeDriver):
    assert len(those(Publish, engine.pass_time(5 * TIMING.heartbeat_s + 0.01))) == 5


def test_who_begins_to_listen_hears_a_status(engine: NodeDriver):
    engine.end_turn()
    engine.status()
    assert those(EndTurn, engine.node.welcome(engine.now))
    assert engine.end_turn() == [Publish()]
    assert engine.end_turn() == []


def test_in_a_large_mesh_news_waits_for_its_turn(make_spec: MakeSpec):
    engine = NodeDriver(replace(TOPOLOGY, timing=replace(TIMING, status_gap_s=0.1)))
    engine.end_turn()
    engine.now = 0.03
    engine.submit(make_spec("r", max_tokens=9))
    [compute] = those(Compute, engine.end_turn())
    engine.node.welcome(engine.now)
    assert not those(Publish, engine.end_turn())
    assert not those(EndTurn, engine.finish(compute)), "the turn that tells is later"
    assert those(Publish, engine.pass_time(0.1)) == [Publish()]
    assert engine.status().num_running == 1
    assert those(Publish, engine.pass_time(0.31)) == [Publish()], "a heartbeat later"


def test_a_role_is_told_at_the_end_of_the_turn(engine: NodeDriver):
    engine.status()
    assert those(EndTurn, engine.receive(SetRole(Role.PREFILL, 0)))
    assert those(Publish, engine.end_turn())
    assert engine.status().role is Role.PREFILL


# --- steps ------------------------------------------------------------------------------------------------------------


def test_the_next_step_follows_at_once(computing: tuple[NodeDriver, Compute]):
    engine, compute = computing
    assert len(those(Compute, engine.finish(compute))) == 1


def test_while_a_step_runs_no_other_begins(computing: tuple[NodeDriver, Compute], make_spec: MakeSpec):
    engine, _ = computing
    engine.submit(make_spec("later"))
    assert not those(Compute, engine.end_turn())


def test_a_step_that_hangs_is_told(computing: tuple[NodeDriver, Compute]):
    engine, compute = computing
    for _ in range(2000):
        engine.now += TIMING.heartbeat_s
        status = engine.status()
    assert status.state is ProcessState.STUCK
    assert status.error is not None
    engine.finish(compute)
    assert engine.status().state is ProcessState.READY


def test_while_a_step_hangs_nobody_hands_a_request_over(computing: tuple[NodeDriver, Compute], make_spec: MakeSpec):
    engine, compute = computing
    memory = VirtualMesh().add("other").core._services[SERVICE].memory
    for _ in range(2000):
        engine.now += TIMING.heartbeat_s
        engine.status()
    reserve = Reserve("t", make_spec("moved"), Epoch(1, 1), 8, SHAPE, memory, deadline_s=60.0)
    [declined] = messages(engine.receive(reserve, OTHER))
    assert isinstance(declined, Declined)
    assert declined.code is RefusalCode.FULL
    assert "has been running for" in declined.reason
    engine.finish(compute)
    assert isinstance(messages(engine.receive(reserve, OTHER))[0], Reserved)


def test_a_step_that_fails_lets_the_device_recover_first(computing: tuple[NodeDriver, Compute]):
    engine, _ = computing
    assert engine.fail() == [Recover(frees_memory=False)]
    [failed] = messages(engine.node.recovered(engine.now))
    assert isinstance(failed, Failed)
    assert failed.reason == "the engine could not compute it: no"
    assert engine.core.is_idle


def test_where_memory_is_short_it_is_freed(computing: tuple[NodeDriver, Compute]):
    engine, _ = computing
    assert engine.fail(StepError.MEMORY) == [Recover(frees_memory=True)]


def test_a_device_that_is_lost_ends_the_process(computing: tuple[NodeDriver, Compute]):
    engine, _ = computing
    assert engine.fail(StepError.DEVICE) == [Exit("its device is lost: ValueError: no")]


def test_a_device_that_does_not_recover_ends_the_process(computing: tuple[NodeDriver, Compute]):
    engine, _ = computing
    engine.fail()
    assert engine.node.not_recovered() == [Exit("its device is lost: ValueError: no")]


def test_an_engine_whose_steps_all_fail_ends(engine: NodeDriver, make_spec: MakeSpec):
    ends = []
    for number in range(MOST_IN_A_ROW):
        engine.submit(make_spec(f"r{number}"))
        engine.end_turn()
        engine.fail()
        ends.append(those(Exit, engine.node.recovered(engine.now)))
    *before, last = ends
    assert not any(before)
    assert last == [Exit("steps of many requests failed, and none was computed; the last: ValueError: no")]


# --- its end ----------------------------------------------------------------------------------------------------------


def test_an_idle_engine_that_is_to_end_rests_at_once(engine: NodeDriver):
    assert those(Rest, engine.node.drain(engine.now)) == [Rest()]


def test_it_rests_when_its_last_request_has_ended(computing: tuple[NodeDriver, Compute]):
    engine, compute = computing
    assert not those(Rest, engine.node.drain(engine.now))
    [second] = those(Compute, engine.finish(compute))
    assert those(Rest, engine.finish(second)) == [Rest()]


def test_it_rests_after_a_while_whatever_is_left(computing: tuple[NodeDriver, Compute]):
    engine, _ = computing
    engine.node.drain(engine.now)
    for _ in range(100):
        engine.node.hear(GATEWAY, None, engine.now)
        if those(Rest, engine.pass_time(engine.now + 0.5 * TIMING.lease_s)):
            break
    assert engine.now == pytest.approx(TIMING.drain_s, abs=0.5 * TIMING.lease_s)


def test_a_cancelled_request_lets_a_draining_engine_rest(computing: tuple[NodeDriver, Compute]):
    engine, compute = computing
    engine.node.drain(engine.now)
    engine.receive(Cancel("r", Epoch(1, 9)))
    assert those(Rest, engine.finish(compute)) == [Rest()]


def test_a_draining_engine_answers_what_it_is_asked(computing: tuple[NodeDriver, Compute]):
    engine, _ = computing
    engine.node.drain(engine.now)
    assert messages(engine.receive(Probe([ProbeQuestion("gone", 1, 0)])))
