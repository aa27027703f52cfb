"""A server in the place of an engine: what it answers to a gateway, and what it says of itself."""

from dataclasses import replace

import msgspec
import pytest

from mesh.topology.schema import EngineSpec, ServerSpec
from mesh.wire.control import Drain, ProcessState, Role
from mesh.wire.requests import (
    PRIORITY_BATCH,
    Accepted,
    Cancel,
    Epoch,
    Failed,
    FailureCode,
    FinishReason,
    Held,
    NotHeld,
    Probe,
    ProbeQuestion,
    Recall,
    RefusalCode,
    Refused,
    StepTokens,
    Submit,
)
from mesh.wire.status import MOST_PREFILLS
from router.servers.effects import Say, StartCall, StopCall, TellStatus
from router.servers.facts import ServedName, ServerFacts, ServerKind, ServerLoad
from router.servers.learnt.costs import ServerCosts
from router.servers.server_core import ServerCore
from tests.router.cluster import SERVICE, make_spec

ENGINE = EngineSpec(
    "s", Role.MULTIPLEX, (SERVICE,), backend="openai", server=ServerSpec("http://s", read_timeout_s=10.0), max_running=2
)
FACTS = ServerFacts(ServerKind.VLLM, "1", ())
FACTS_WITH_MODEL = replace(FACTS, models=(ServedName(SERVICE),))
FIRST = Epoch(0)


def submit(id_="r", attempt=0, **fields):
    service = fields.pop("service", SERVICE)
    return Submit(msgspec.structs.replace(make_spec(id_, **fields), service=service), Epoch(attempt))


def said(effects):
    return [effect.message for effect in effects if isinstance(effect, Say)]


@pytest.fixture
def core():
    made = ServerCore(ENGINE, ServerCosts())
    made.found(FACTS, 0.0)
    yield made
    made.check_invariants()


def test_a_request_is_accepted_told_of_and_ended(core):
    effects = core.take(submit(), 1.0)
    assert [type(effect) for effect in effects] == [Say, StartCall, TellStatus]
    assert said(effects) == [Accepted("r", FIRST, 1)]
    status = core.status(1.0)
    assert (status.seq, status.num_running, status.num_waiting, len(status.prefills)) == (1, 1, 0, 1)
    assert status.prefill_remaining_s > 0
    [tokens] = said(core.got("r", FIRST, [0, 0], None, 3, 2.0))
    assert isinstance(tokens, StepTokens)
    assert [(delta.offset, delta.tokens, delta.num_cached_tokens) for delta in tokens.deltas] == [(0, [0, 0], 3)]
    status = core.status(2.0)
    assert (status.num_running, status.prefill_remaining_s, status.min_tpot_slo_s) == (
        1,
        0.0,
        make_spec("r").slo_tpot_s,
    )
    [last] = said(core.got("r", FIRST, [0], FinishReason.STOP, 0, 3.0))
    assert (last.deltas[0].offset, last.deltas[0].finish) == (2, FinishReason.STOP)
    assert core.status(3.0).num_tokens == 0
    assert core.got("r", FIRST, [0], None, 0, 3.0) == [StopCall("r")], "nobody wants more"


def test_what_it_cannot_take_is_refused(core):
    assert said(core.take(submit("other", service="else"), 0.0))[0].code is RefusalCode.UNKNOWN_SERVICE
    core.take(submit("a"), 0.0)
    core.take(submit("b"), 0.0)
    assert said(core.take(submit("c"), 0.0))[0].code is RefusalCode.FULL
    core.take(Drain(), 0.0)
    assert core.status(0.0).state is ProcessState.DRAINING
    assert said(core.take(submit("c"), 0.0))[0].code is RefusalCode.DRAINING
    assert core.status(0.0).num_tokens, "what runs there ends there"
    core.take(Drain(undo=True), 0.0)
    assert core.state is ProcessState.READY


def test_a_server_that_is_busy_is_left_alone_for_as_long_as_it_says(core):
    core.take(submit(), 0.0)
    [refused] = said(core.refused("r", FIRST, "HTTP 429", 5.0, 0.0))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.FULL
    assert core.status(3.0).services[0].line_s == 2.0, "as long, whoever comes waits"
    assert core.status(5.0).services[0].line_s is None
    assert said(core.take(submit(attempt=1), 4.9))[0].code is RefusalCode.FULL
    assert isinstance(said(core.take(submit(attempt=2), 5.0))[0], Accepted)


def test_cancels_and_recalls_stop_calls_of_their_epochs_alone(core):
    core.take(submit(attempt=1), 0.0)
    assert core.take(Cancel("r", Epoch(0, 9)), 0.0) == []
    assert StopCall("r") in core.take(Cancel("r", Epoch(1, 9)), 0.0)
    core.take(submit(attempt=2), 0.0)
    [recalled] = said(core.take(Recall("r", Epoch(2, 9)), 0.0))
    assert recalled.code is RefusalCode.RECALLED
    core.take(submit(attempt=3), 0.0)
    core.got("r", Epoch(3), [0], None, 0, 0.0)
    assert core.take(Recall("r", Epoch(3, 9)), 0.0) == [], "it has begun"


def test_questions_are_answered(core):
    core.take(submit(), 0.0)
    held, not_held = said(core.take(Probe([ProbeQuestion("r", 0, 0), ProbeQuestion("x", 0, 0)]), 0.0))
    assert isinstance(held, Held)
    assert held.requests[0].request == "r"
    assert not_held == NotHeld([("x", 0)])


def test_a_call_that_is_silent_for_too_long_is_given_up(core):
    core.take(submit(slo_ttft_s=2.0), 0.0)
    assert core.overdue(20.0) == [], "a first token may take ten times its promise"
    effects = core.overdue(20.1)
    assert effects[0] == StopCall("r")
    [failed] = said(effects)
    assert isinstance(failed, Failed)
    assert failed.code is FailureCode.BROKEN
    core.take(submit(attempt=1), 30.0)
    core.got("r", Epoch(1), [0], None, 0, 31.0)
    assert core.overdue(41.0) == []
    assert said(core.overdue(41.1))[0].code is FailureCode.BROKEN
    core.take(submit(attempt=2), 50.0)
    core.comes_whole("r")
    assert core.overdue(500.0) == [], "whole answers are awaited longer"


def test_what_others_do_there_is_what_its_metrics_say_beyond_ours(core):
    core.take(submit(), 0.0)
    core.got("r", FIRST, [0], None, 0, 0.0)
    core.heard(ServerLoad(num_running=5, num_waiting=2, kv_used=0.5, kv_tokens=1600), 1.0)
    status = core.status(1.0)
    assert (status.num_running, status.num_waiting) == (5, 2)
    assert (status.services[0].num_blocks, status.services[0].num_free_blocks) == (100, 50)


def test_a_server_that_is_lost_has_nothing_and_comes_back_as_another(core):
    core.take(submit(), 0.0)
    assert core.number_found == 1
    assert core.lost() == [StopCall("r")]
    assert said(core.take(submit(attempt=1), 1.0))[0].code is RefusalCode.DRAINING
    core.found(FACTS, 2.0)
    assert core.number_found == 2
    assert core.status(2.0).num_tokens == 0


def test_costs_are_learnt_from_what_comes(core):
    before = core.account.costs.current
    for number in range(40):
        now = 10.0 * number
        core.take(submit(f"r{number}", num_tokens=100 * (number % 8 + 1), max_tokens=100), now)
        core.got(f"r{number}", FIRST, [0], None, 0, now + 0.5 * (number % 8 + 1))
        for step in range(40):
            core.got(f"r{number}", FIRST, [0], None, 0, now + 5.0 + 0.1 * step)
        core.got(f"r{number}", FIRST, [], FinishReason.STOP, 0, now + 9.5)
    after = core.account.costs.current
    assert after.prefill != before.prefill
    assert after.prefill.per_token_s == pytest.approx(0.005, rel=0.3)
    assert core.account.costs.is_learnt


def test_prompts_that_are_computed_together_are_learnt_as_one(core):
    seen = []
    core.account.costs.first_token = seen.append
    core.take(submit("a", num_tokens=100), 0.0)
    core.take(submit("b", num_tokens=50), 0.1)
    core.got("a", FIRST, [0], None, 20, 1.0)
    core.got("b", FIRST, [0], None, 0, 1.001)
    core.status(2.0)
    assert [numbers[:3] for numbers in seen] == [(150, 20, 1.0)]
    core.got("a", FIRST, [], FinishReason.STOP, 0, 2.0)
    core.take(submit("c", num_tokens=30), 2.0)
    core.got("c", FIRST, [0], None, 0, 2.5)
    core.status(3.0)
    assert seen[1][:3] == (30, 0, 0.5)


def test_prompts_there_are_ahead_of_all_that_come_later_though_they_are_late():
    core = ServerCore(replace(ENGINE, max_running=64), ServerCosts())
    core.found(FACTS, 0.0)
    for number in range(MOST_PREFILLS + 8):
        core.take(submit(f"r{number}", num_tokens=100, slo_ttft_s=0.001), 0.0)
    status = core.status(0.01)
    told = status.prefills
    assert len(told) == MOST_PREFILLS
    assert all(one.priority > 100 and one.due_s >= one.left_s for one in told)
    assert sum(one.left_s for one in told) == pytest.approx(status.prefill_remaining_s + status.prefill_waiting_s)


def submit_line(id_):
    return submit(id_, slo_ttft_s=86400.0, priority=PRIORITY_BATCH)


def test_lines_of_batches_are_counted_apart(core):

    before = core.status(0.0)
    core.take(submit_line("line"), 0.0)
    waiting = core.status(0.0)
    core.got("line", Epoch(0), [1, 2], None, 0, 0.1)
    running = core.status(0.1)
    for status, told in ((waiting, (1, 0)), (running, (0, 1))):
        assert (status.services[0].fillers_waiting, status.services[0].fillers_running) == told
        assert (status.num_running, status.num_waiting, status.num_tokens) == (before.num_running, 0, 0)
    core.got("line", Epoch(0), [3], FinishReason.STOP, 0, 0.2)
    core.check_invariants()
    assert core.status(0.3).services[0].fillers_running == 0


def test_a_server_takes_lines_only_if_it_has_something_to_spare(core):

    core.take(submit("asked"), 0.0)
    [refused] = said(core.take(submit_line("line"), 0.0))
    assert (refused.code, refused.reason) == (RefusalCode.FULL, "the server has nothing to spare")
    core.got("asked", Epoch(0), [1], None, 0, 0.1)
    assert isinstance(said(core.take(submit_line("line"), 0.2))[0], Accepted)
    core.check_invariants()


def test_a_service_whose_model_is_gone_leaves_until_the_model_is_back(core):
    core.take(submit(), 0.0)
    [refused] = said(core.lacks_model("r", FIRST, "HTTP 404: no such model", 0.0))
    assert refused.code is RefusalCode.UNKNOWN_SERVICE
    status = core.status(0.0)
    assert (status.state, status.services, status.num_tokens) == (ProcessState.READY, [], 0)
    [failed] = status.failed_loads
    assert (failed.service, failed.reason.endswith("HTTP 404: no such model")) == (SERVICE, True)
    [refused] = said(core.take(submit(attempt=1), 0.5))
    assert (refused.code, refused.reason) == (RefusalCode.UNKNOWN_SERVICE, failed.reason)
    core.found(FACTS_WITH_MODEL, 2.0)
    assert ([one.name for one in core.status(2.0).services], core.status(2.0).failed_loads) == ([SERVICE], [])
    core.found(replace(FACTS_WITH_MODEL, models=()), 3.0)
    assert core.status(3.0).services == []
    core.lost()
    core.found(FACTS_WITH_MODEL, 4.0)
    assert isinstance(said(core.take(submit(attempt=2), 4.0))[0], Accepted)
