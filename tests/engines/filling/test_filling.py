"""Requests without a promise: they get what promises leave, right tokens all the same, and are in nobody's way."""

import pytest

from engines.scheduling.step import Step
from mesh.topology.schema import Scheduling
from mesh.wire.control import Drain, Role
from mesh.wire.requests import PRIORITY_BATCH, Cancel, Epoch, RefusalCode, Refused
from mesh.wire.status import ServiceStatus
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE, continuation
from tests.seeds import each_seed

FILLER = {"priority": PRIORITY_BATCH, "slo_ttft_s": 86400.0, "slo_tpot_s": 86400.0}


def one_engine(seed: int = 0, **options: object) -> VirtualMesh:
    mesh = VirtualMesh(seed)
    mesh.add("only", **options)  # type: ignore[arg-type]
    return mesh


def of_service(mesh: VirtualMesh) -> ServiceStatus:
    return mesh.engines["only"].core.status(mesh.now).services[0]


def start(mesh: VirtualMesh) -> Step:
    """Choose the next step, and leave it running."""
    core = mesh.engines["only"].core
    step, _ = core.next_step(mesh.now)
    assert step is not None
    return step


@pytest.mark.parametrize("scheduling", [Scheduling.SLO, Scheduling.STATIC, Scheduling.PADDED])
def test_a_filler_alone_is_answered_as_anybody(make_spec: MakeSpec, scheduling: Scheduling):
    """Also where batches are static: it is in none of them."""
    mesh = one_engine(scheduling=scheduling, chunk_tokens=64)
    spec = make_spec("line", 21, max_tokens=9, **FILLER)
    mesh.submit("only", spec)
    mesh.settle()
    assert mesh.streams["line"] == continuation(spec.prompt, 9)


@pytest.mark.parametrize("role", [Role.MULTIPLEX, Role.PREFILL, Role.DECODE])
def test_all_roles_fill(make_spec: MakeSpec, role: Role):
    mesh = one_engine(role=role)
    specs = [make_spec(f"line{number}", 9 + number, max_tokens=5, **FILLER) for number in range(4)]
    for spec in specs:
        mesh.submit("only", spec)
    mesh.settle()
    assert [mesh.streams[spec.id] for spec in specs] == [continuation(spec.prompt, 5) for spec in specs]


def test_statuses_count_no_filler(make_spec: MakeSpec):
    mesh = one_engine()
    idle = mesh.engines["only"].core.status(0.0)
    for number in range(3):
        mesh.submit("only", make_spec(f"line{number}", 9, **FILLER))
    start(mesh)
    status = mesh.engines["only"].core.status(0.0)
    told = status.services[0]
    assert (told.fillers_waiting, told.fillers_running) == (2, 1)
    assert told.num_free_blocks == idle.services[0].num_free_blocks
    assert (status.num_running, status.num_waiting, status.num_tokens, status.decode_step_s) == (0, 0, 0, 0.0)
    assert (status.prefill_waiting_s, status.prefills) == (0.0, [])


def test_the_step_after_a_prompt_came_has_no_filler(make_spec: MakeSpec):
    mesh = one_engine(chunk_tokens=4)
    mesh.submit("only", make_spec("line", 16, **FILLER))
    first = start(mesh)
    assert [share.request.id for share in first.shares] == ["line"]
    mesh.submit("only", make_spec("asked", 12))
    core, executor = mesh.engines["only"].core, mesh.engines["only"].executor
    mesh.perform("only", core.finish_step(executor.execute(first.batch()), 0.0))
    assert [share.request.id for share in start(mesh).shares] == ["asked"]


def test_decodes_that_have_time_to_spare_are_filled_up(make_spec: MakeSpec):
    mesh = one_engine()
    mesh.submit("only", make_spec("asked", 4, max_tokens=30))
    core, executor = mesh.engines["only"].core, mesh.engines["only"].executor
    mesh.perform("only", core.finish_step(executor.execute(start(mesh).batch()), 0.0))
    mesh.submit("only", make_spec("line", 6, max_tokens=3, **FILLER))
    assert [share.request.id for share in start(mesh).shares] == ["asked", "line"]


def test_decodes_without_a_moment_to_spare_are_not(make_spec: MakeSpec):
    mesh = one_engine()
    mesh.submit("only", make_spec("asked", 4, max_tokens=30, slo_tpot_s=0.01))
    core, executor = mesh.engines["only"].core, mesh.engines["only"].executor
    mesh.perform("only", core.finish_step(executor.execute(start(mesh).batch()), 0.0))
    mesh.submit("only", make_spec("line", 6, **FILLER))
    mesh.now = 0.05  # late, and able to make up for it
    assert [share.request.id for share in start(mesh).shares] == ["asked"]


def test_whoever_wants_their_memory_takes_it(make_spec: MakeSpec):
    mesh = one_engine(num_blocks=16)
    block = of_service(mesh).block_size
    line = make_spec("line", 5 * block, max_tokens=8, **FILLER)
    mesh.submit("only", line)
    for _ in range(4):
        mesh.step()
    asked = make_spec("asked", 14 * block, max_tokens=4, first=500)
    mesh.submit("only", asked)
    mesh.settle()
    assert mesh.streams["asked"] == continuation(asked.prompt, 4)
    assert mesh.streams["line"] == continuation(line.prompt, 8)


@each_seed(range(12))
def test_tokens_are_right_whatever_comes_when(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    mesh.add("prefill", Role.PREFILL, num_blocks=20)
    mesh.add("decode", num_blocks=20)
    specs = [make_spec(f"r{number}", 5 + 3 * number, max_tokens=6, first=100 * number + 1) for number in range(5)]
    lines = [make_spec(f"l{number}", 7 + 5 * number, max_tokens=7, **FILLER) for number in range(6)]
    for number, line in enumerate(lines):
        mesh.submit(("prefill", "decode")[number % 2], line)
        mesh.step()
        if number < len(specs):
            mesh.submit("prefill", specs[number], decode="decode" if number % 2 else None)
    mesh.settle()
    for spec, num_tokens in [*((spec, 6) for spec in specs), *((line, 7) for line in lines)]:
        refused = [one for one in mesh.answers if isinstance(one, Refused) and one.request == spec.id]
        assert refused or mesh.streams[spec.id] == continuation(spec.prompt, num_tokens)
    assert not any(isinstance(one, Refused) and one.request.startswith("l") for one in mesh.answers)


def test_a_cancelled_filler_holds_nothing(make_spec: MakeSpec):
    mesh = one_engine()
    mesh.submit("only", make_spec("line", 20, max_tokens=50, **FILLER))
    for _ in range(5):
        mesh.step()
    mesh.deliver(GATEWAY, "only", Cancel("line", Epoch(1)))
    mesh.settle()
    assert mesh.engines["only"].core.is_idle


def test_who_drains_gives_fillers_back(make_spec: MakeSpec):
    mesh = one_engine()
    mesh.submit("only", make_spec("line", 20, max_tokens=50, **FILLER))
    mesh.step()
    mesh.deliver("operator", "only", Drain())
    mesh.settle()
    assert [one.code for one in mesh.answers if isinstance(one, Refused)] == [RefusalCode.DRAINING]
    assert mesh.engines["only"].core.is_idle


def test_no_more_than_so_many_wait(make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engines.admission.acceptance.MAX_WAITING_FILLERS", 2)
    mesh = one_engine()
    for number in range(3):
        mesh.submit("only", make_spec(f"line{number}", 8, **FILLER))
    mesh.settle()
    assert [one.code for one in mesh.answers if isinstance(one, Refused)] == [RefusalCode.FULL]


def test_prompts_that_are_not_cut_wait_for_a_step_with_room_for_them(make_spec: MakeSpec):
    mesh = one_engine(chunk_tokens=8)
    mesh.engines["only"].core._services[SERVICE].whole_prompts = True
    for name, num_tokens in (("short", 5), ("long", 6)):
        mesh.submit("only", make_spec(name, num_tokens, max_tokens=1, **FILLER))
    core, executor = mesh.engines["only"].core, mesh.engines["only"].executor
    first = start(mesh)
    assert [(share.request.id, share.num_tokens) for share in first.shares] == [("short", 5)]
    mesh.perform("only", core.finish_step(executor.execute(first.batch()), 0.0))
    assert [(share.request.id, share.num_tokens) for share in start(mesh).shares] == [("long", 6)]
