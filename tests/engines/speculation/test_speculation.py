"""Engines that speculate give the answers of those that do not, in fewer steps, whatever happens meanwhile."""

import random

import msgspec

from engines.core import EngineCore
from engines.speculation.speculation import Speculation
from mesh.wire.control import Migrate, Role
from mesh.wire.requests import RequestSpec, Sampling
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, SERVICE, STEP_S, continuation
from tests.seeds import each_seed

FEW = 2  # tokens of the vocabulary: what came before comes again


def answer(spec: RequestSpec) -> list[int]:
    return continuation(list(spec.prompt), spec.sampling.max_tokens, vocabulary=FEW)


def new_mesh(seed: int = 0, drafts: int = 5) -> VirtualMesh:
    return VirtualMesh(seed, vocabulary=FEW, drafts=drafts)


def speculation(core: EngineCore) -> Speculation:
    found = core._services[SERVICE].speculation
    assert found is not None
    return found


def run_alone(spec: RequestSpec, drafts: int) -> VirtualMesh:
    mesh = new_mesh(drafts=drafts)
    mesh.add("e", num_blocks=64)
    mesh.submit("e", spec)
    mesh.settle()
    return mesh


def test_an_answer_is_the_same_in_fewer_steps(make_spec: MakeSpec):
    spec = make_spec("r", 8, max_tokens=120, first=2)
    plain, mesh = run_alone(spec, drafts=0), run_alone(spec, drafts=5)
    assert mesh.streams["r"] == plain.streams["r"] == answer(spec)
    assert mesh.now < 0.8 * plain.now
    counts = speculation(mesh.engines["e"].core).counts
    assert 0 < counts.num_accepted < counts.num_drafted
    assert counts.num_checks + counts.num_accepted <= 120
    status = mesh.engines["e"].core.status(mesh.now).services[0]
    assert (status.drafts_checked, status.tokens_drafted, status.drafts_accepted) == counts


def test_an_answer_ends_with_its_first_end_token_among_the_drafts(make_spec: MakeSpec):
    spec = make_spec("r", 8, max_tokens=120, first=2)
    right = answer(spec)
    for stop in (10, 11):
        first = right.index(stop, 40)
        sampling = Sampling(max_tokens=120, seed=1, temperature=0.0, stop_token_ids=[stop], min_tokens=first + 1)
        mesh = run_alone(msgspec.structs.replace(spec, sampling=sampling), drafts=7)
        assert mesh.streams["r"] == right[: first + 1]
        assert mesh.finished["r"] == "stop"
        assert speculation(mesh.engines["e"].core).counts.num_accepted > 0


def test_the_pace_is_that_of_tokens(make_spec: MakeSpec):
    mesh, paces = new_mesh(), list[float]()
    core = mesh.add("e", num_blocks=64).core
    mesh.submit("e", make_spec("r", 8, max_tokens=120, first=2))
    while mesh.step():
        paces.append(core.status(mesh.now).pace_s)
    assert 0 < min(pace for pace in paces if pace) < 0.8 * STEP_S


def test_decodes_of_other_requests_share_the_step(make_spec: MakeSpec):
    mesh = new_mesh()
    mesh.add("e", num_blocks=200, max_running=8)
    specs = [make_spec(f"r{number}", 5 + number, 30 + 7 * number, first=10 * number) for number in range(8)]
    for spec in specs:
        mesh.submit("e", spec)
    mesh.settle()
    assert [mesh.streams[spec.id] for spec in specs] == [answer(spec) for spec in specs]
    assert speculation(mesh.engines["e"].core).counts.num_accepted > 0


@each_seed(8)
def test_answers_are_right_where_memory_is_short_and_requests_move(make_spec: MakeSpec, seed: int):
    """Preempted, handed over, migrated, in slices, with common beginnings and ends that come early."""
    dice, mesh = random.Random(seed), new_mesh(seed, drafts=random.Random(seed).randint(1, 7))
    num_blocks, slices = dice.choice([10, 16, 40]), dice.choice([None, 8, 12])
    limits = {} if slices is None else {"slice_tokens": slices, "offload_bytes": 10**6}
    for name in "ab":
        role = dice.choice([Role.MULTIPLEX, Role.MULTIPLEX, Role.PREFILL]) if name == "a" else Role.MULTIPLEX
        mesh.add(name, role, num_blocks=num_blocks, max_waiting=32, deliver_every=dice.choice([1, 1, 5]), **limits)
    specs = []
    for number in range(12):
        num_tokens = dice.randint(2, num_blocks * BLOCK_SIZE // dice.choice([1, 2, 3]))
        num_prompt = dice.randint(1, num_tokens - 1)
        specs.append(make_spec(f"r{number}", num_prompt, num_tokens - num_prompt, first=100 * dice.randint(0, 2)))
        mesh.submit(dice.choice("ab"), specs[-1], dice.choice("ab"))
        for _ in range(dice.randint(0, 25)):
            mesh.step()
        if dice.random() < 0.5:
            mesh.deliver("cli", dice.choice("ab"), Migrate(dice.choice(specs).id, dice.choice("ab"), "by hand"))
    mesh.settle()
    refused = {one.request for one in mesh.answers if hasattr(one, "code")}
    served = [spec for spec in specs if spec.id not in refused]
    assert {spec.id: mesh.streams[spec.id] for spec in served} == {spec.id: answer(spec) for spec in served}
    assert len(served) > len(specs) // 2
    for engine in mesh.engines.values():
        assert all(service.pool.num_held == 0 for service in engine.core._services.values())
