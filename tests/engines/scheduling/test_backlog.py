"""The prefills that an engine has before it: those that wait, those that have begun, and when each is due."""

import pytest

from engines.core import EngineCore
from engines.scheduling.batch import ChunkResult, StepResult
from mesh.topology.schema import Scheduling
from mesh.wire.requests import Epoch, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE

TOKEN_S = 0.001  # of a prompt


def core_with(make_spec: MakeSpec, **num_prompt: int) -> EngineCore:
    """An engine to which requests came at 5, with a promise of ten seconds each."""
    core = VirtualMesh().add("e", chunk_tokens=8).core
    for number, (name, num_tokens) in enumerate(num_prompt.items()):
        core.receive(GATEWAY, Submit(make_spec(name, num_tokens, first=1000 * number), Epoch(1)), (), 5.0)
    return core


def test_what_waits_is_told_with_the_time_that_is_left_until_it_is_due(make_spec: MakeSpec):
    status = core_with(make_spec, short=10, long=20).status(7.0)
    assert [(one.due_s, one.left_s) for one in status.prefills] == [
        (pytest.approx(8.0), pytest.approx(10 * TOKEN_S)),
        (pytest.approx(8.0), pytest.approx(20 * TOKEN_S)),
    ]
    assert (status.num_waiting, status.prefill_remaining_s) == (2, 0.0)
    assert status.prefill_waiting_s == pytest.approx(30 * TOKEN_S)


def test_what_has_begun_is_left_in_part(make_spec: MakeSpec):
    core = core_with(make_spec, r=20)
    batch, _ = core.next_batch(7.0)
    assert batch is not None
    assert len(batch.chunks[0].tokens) == 8
    began, later = core.status(7.0), core.status(7.005)
    assert (began.num_waiting, began.prefill_waiting_s) == (0, 0.0)
    assert began.prefill_remaining_s == pytest.approx(20 * TOKEN_S)
    assert later.prefill_remaining_s == pytest.approx(15 * TOKEN_S)
    assert [(one.due_s, one.left_s) for one in later.prefills] == [(pytest.approx(7.995), pytest.approx(15 * TOKEN_S))]


def test_what_the_running_step_computes_is_told_as_nobody_passes_it(make_spec: MakeSpec):
    core = core_with(make_spec, r=20, waits=20)
    assert [one.running_s for one in core.status(7.0).prefills] == [0.0, 0.0]
    core.next_batch(7.0)
    assert sorted(one.running_s for one in core.status(7.003).prefills) == [0.0, pytest.approx(5 * TOKEN_S)]


def test_an_engine_without_prompts_has_no_backlog(make_spec: MakeSpec):
    status = core_with(make_spec).status(7.0)
    assert (status.prefills, status.num_waiting, status.prefill_waiting_s, status.prefill_remaining_s) == ([], 0, 0, 0)


def test_what_has_been_computed_of_a_step_does_not_make_its_prefill_late(make_spec: MakeSpec):
    core = VirtualMesh().add("e", chunk_tokens=512).core
    core.receive(GATEWAY, Submit(make_spec("r", 20, slo_ttft_s=0.025), Epoch(1)), (), 5.0)
    core.next_batch(5.0)
    assert core.status(5.015).prefills[0].due_s == pytest.approx(0.010)


def test_a_newcomer_waits_for_prompts_and_for_decodes_until_these_have_likely_ended(make_spec: MakeSpec):
    core = VirtualMesh().add("e", chunk_tokens=8, scheduling=Scheduling.FCFS, services=(SERVICE, OTHER)).core
    core.receive(GATEWAY, Submit(make_spec("decodes", 8, max_tokens=9), Epoch(1)), (), 5.0)
    step, _ = core.next_step(5.0)
    assert step is not None
    core.finish_step(StepResult([ChunkResult(7)], 0.01), 5.01)
    core.receive(GATEWAY, Submit(make_spec("waits", 20, first=1000), Epoch(1)), (), 5.02)
    lines = {one.name: one.line_s for one in core.status(5.02).services}
    service = core._services[SERVICE]
    prompt_s, step_s = service.prefill_s(core._requests["waits"]), service.decode_step_s()
    assert lines == {SERVICE: pytest.approx(prompt_s), OTHER: pytest.approx(prompt_s + step_s)}


def test_where_promises_say_who_goes_first_nothing_is_told_of_a_line(make_spec: MakeSpec):
    [service] = core_with(make_spec, r=20).status(7.0).services
    assert service.line_s is None
