"""When an engine tells what it does: at once what others cannot foresee, and nothing else."""

import pytest

from mesh.wire.control import Drain, Migrate, ProcessState, Role, SetRole
from mesh.wire.requests import Accepted, Refused
from mesh.wire.status import EngineStatus
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY
from tests.seeds import each_seed

SEEDS = range(12)
MOST_STEPS = 10_000


def counts(status: EngineStatus) -> tuple[object, ...]:
    """What no extrapolation gives."""
    return (
        status.state,
        status.role,
        status.num_running,
        status.num_waiting,
        len(status.prefills),
        status.cancelled_total,
        status.preemptions_total,
        status.num_role_changes,
    )


def tell(mesh: VirtualMesh, told: dict[str, list[EngineStatus]]) -> None:
    """Publish as the shell does; without news, nothing that counts may have changed."""
    for name, engine in mesh.engines.items():
        has_news, status = engine.core.has_news, engine.core.status(mesh.now)
        if has_news:
            told[name].append(status)
        else:
            assert counts(status) == counts(told[name][-1]), f"{name} kept something to itself"


@pytest.mark.parametrize("num_blocks", [14, 64])
@each_seed(SEEDS)
def test_whatever_changes_but_by_steps_is_told(make_spec: MakeSpec, seed: int, num_blocks: int):
    mesh = VirtualMesh(seed)
    mesh.add("prefill", Role.PREFILL, num_blocks)
    mesh.add("decode", Role.MULTIPLEX, num_blocks)
    told: dict[str, list[EngineStatus]] = {"prefill": [], "decode": []}
    tell(mesh, told)
    for index in range(6):
        spec = make_spec(f"r{index}", 3 + 5 * index, max_tokens=1 + 3 * index)
        mesh.submit("prefill" if index % 3 else "decode", spec, decode="decode" if index % 3 else None)
        tell(mesh, told)
    for _ in range(MOST_STEPS):
        if not mesh.step():
            break
        tell(mesh, told)
    assert len(mesh.finished) + sum(isinstance(answer, Refused) for answer in mesh.answers) == 6


def test_decode_steps_are_no_news(make_spec: MakeSpec):
    mesh = VirtualMesh()
    core = mesh.add("only").core
    assert core.has_news
    core.status(mesh.now)
    mesh.submit("only", make_spec("r", 4, max_tokens=9))
    news = []
    while True:
        if core.has_news:
            news.append(core.status(mesh.now).num_running)
        if not mesh.step():
            break
    assert news == [0, 1, 1, 0]  # accepted, begun, its prompt computed, ended


def test_an_accepted_request_is_counted_by_the_status_that_its_gateway_waits_for(make_spec: MakeSpec):
    mesh = VirtualMesh()
    core = mesh.add("only").core
    core.status(mesh.now)
    mesh.submit("only", make_spec("r", 4, max_tokens=9))
    while not mesh.answers:
        assert core.has_news
        mesh.step()
    [answer] = mesh.answers
    assert isinstance(answer, Accepted)
    status = core.status(mesh.now)
    assert status.seq >= answer.status_seq
    assert status.num_running + status.num_waiting == 1


def test_another_role_is_told_at_once():
    mesh = VirtualMesh()
    core = mesh.add("only").core
    core.status(mesh.now)
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0))
    assert core.has_news
    assert core.status(mesh.now).role is Role.PREFILL
    assert not core.has_news


def test_draining_and_its_end_are_told_at_once():
    mesh = VirtualMesh()
    core = mesh.add("only").core
    for undo, state in ((False, ProcessState.DRAINING), (True, ProcessState.READY)):
        core.status(mesh.now)
        mesh.deliver(GATEWAY, "only", Drain(undo))
        assert core.has_news
        assert core.status(mesh.now).state is state


def test_a_migration_that_cannot_be_is_told_at_once():
    mesh = VirtualMesh()
    core = mesh.add("only").core
    core.status(mesh.now)
    mesh.deliver(GATEWAY, "only", Migrate("nobody", "elsewhere", "a test"))
    assert core.has_news
    assert core.status(mesh.now).migrations_aborted_total == 1
