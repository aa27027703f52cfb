"""Engines with a draft model give the answers of those without, in fewer steps, whatever happens meanwhile."""

import random

import msgspec
import pytest

from engines.costs.step_cost import MixedCost, StepCost
from engines.engine_request import EngineRequest
from engines.scheduling.batch import Drafting
from engines.speculation.choice import Writing
from engines.speculation.model_drafter import ModelDrafter
from engines.speculation.model_speculation import ModelSpeculation, ModelWriting
from mesh.wire.control import LoadService, Migrate, Role, UnloadService
from mesh.wire.requests import Epoch, RequestSpec
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import BLOCK_SIZE, OTHER, SERVICE, continuation
from tests.seeds import each_seed

BOTH = (SERVICE, OTHER)


def answer(spec: RequestSpec) -> list[int]:
    return continuation(list(spec.prompt), spec.sampling.max_tokens)


def new_mesh(seed: int = 0, drafts: int = 5) -> VirtualMesh:
    return VirtualMesh(seed, drafts=drafts, draft_model=OTHER)


def speculation(engine: VirtualEngine) -> ModelSpeculation:
    found = engine.core._services[SERVICE].speculation
    assert isinstance(found, ModelSpeculation)
    return found


def held(engine: VirtualEngine) -> dict[str, int]:
    return {name: service.pool.num_held for name, service in engine.core._services.items()}


def run_alone(spec: RequestSpec, drafts: int, num_blocks: int = 64) -> VirtualMesh:
    mesh = new_mesh(drafts=drafts)
    mesh.add("e", num_blocks=num_blocks, services=BOTH)
    mesh.submit("e", spec)
    mesh.settle()
    return mesh


def test_an_answer_is_the_same_in_fewer_steps(make_spec: MakeSpec):
    spec = make_spec("r", 20, max_tokens=120, first=2)
    plain = VirtualMesh()
    plain.add("e", num_blocks=64)
    plain.submit("e", spec)
    plain.settle()
    mesh = run_alone(spec, 5)
    assert mesh.streams["r"] == plain.streams["r"] == answer(spec)
    assert mesh.now < 0.5 * plain.now
    counts = speculation(mesh.engines["e"]).counts
    assert 60 < counts.num_accepted < counts.num_drafted
    assert counts.num_checks + counts.num_accepted <= 120
    assert held(mesh.engines["e"]) == dict.fromkeys(BOTH, 0)


def test_a_conversation_that_goes_on_finds_what_the_draft_model_computed(make_spec: MakeSpec):
    mesh = run_alone(make_spec("r", 20, max_tokens=40, first=2), 5)
    engine, spec = mesh.engines["e"], make_spec("again", 20, max_tokens=12, first=2)
    pool = engine.core._services[OTHER].pool
    assert len(pool.match(list(spec.prompt), 20, spec.prefix_salt)) == 20 // BLOCK_SIZE


def test_a_long_prompt_is_caught_up_with_in_parts():
    class Pool:
        block_size = 16

        def match(self, tokens: list[int], num_tokens: int, salt: bytes) -> list[int]:
            return []

        def blocks_for(self, num_tokens: int) -> int:
            return -(-num_tokens // 16)

        def can_allocate(self, count: int) -> bool:
            return True

        def allocate(self, count: int) -> list[int]:
            return list(range(count))

    drafter, pool = ModelDrafter([0] * 1200, b""), Pool()
    parts = []
    for _ in range(3):
        drafting = drafter.drafting("small", pool, 3)  # type: ignore[arg-type]
        assert drafting is not None
        parts.append((drafting.start, drafting.end, drafting.number))
        drafter.checked(drafting, 2)
    assert parts == [(0, 512, 0), (512, 1024, 0), (1024, 1200, 3)]
    assert drafter.num_computed == 1202


@pytest.mark.parametrize(("num_accepted", "num_computed"), [(0, 10), (1, 11), (2, 12), (3, 12)])
def test_the_last_draft_is_not_computed_and_wrong_ones_do_not_count(num_accepted: int, num_computed: int):
    drafter = ModelDrafter([0] * 10, b"")
    drafter.checked(Drafting("small", [], 9, 10, 3), num_accepted)
    assert drafter.num_computed == num_computed


def test_what_is_computed_once_is_charged_to_the_steps_that_use_it(make_spec: MakeSpec):
    request = EngineRequest.of(make_spec("r", 100, max_tokens=80), Epoch(0), 0.0, frozenset(), 4096)
    cost = StepCost(PrefillCost(0.0, 0.001), DecodeCost(0.001, 0.0))
    new, lost = ModelDrafter(request.tokens, b""), ModelDrafter(request.tokens, b"")
    lost.num_lost = 3
    first = ModelWriting([(request, new)], cost)
    takes_s, charged_s = first.add(0, 1)
    assert takes_s == pytest.approx(0.1)
    assert charged_s == pytest.approx(0.001 + 0.099 / 40)
    assert first.add(0, 2) == pytest.approx(Writing(takes_s + 0.001, charged_s + 0.001))
    assert ModelWriting([(request, lost)], cost).add(0, 1).charged_s == pytest.approx(0.1, rel=0.25)


def test_what_many_lack_is_charged_as_they_share_the_step(make_spec: MakeSpec):
    """A step of many chunks takes less than so many steps of one."""
    request = EngineRequest.of(make_spec("r", 100, max_tokens=80), Epoch(0), 0.0, frozenset(), 4096)
    cost = StepCost(PrefillCost(0.5, 0.001), DecodeCost(0.001, 0.0), MixedCost(0.0, 0.0))
    writing = ModelWriting([(request, ModelDrafter(request.tokens, b"")) for _ in range(8)], cost)
    takes_s, charged_s = [writing.add(index, 1) for index in range(8)][-1]
    assert takes_s == pytest.approx(1.3)
    assert charged_s == pytest.approx(0.001 + 1.299 / 40)


def test_requests_have_the_memory_of_drafts_where_it_is_short(make_spec: MakeSpec):
    """What drafts held goes to a prompt that waits for it, and nothing is preempted for them."""
    mesh = new_mesh()
    engine = mesh.add("e", num_blocks=24, services=BOTH)
    specs = [make_spec("first", 20, max_tokens=60, first=2), make_spec("second", 12 * BLOCK_SIZE, 8, first=90)]
    mesh.submit("e", specs[0])
    while not held(engine)[OTHER]:
        mesh.step()
    mesh.submit("e", specs[1])
    mesh.settle()
    assert [mesh.streams[spec.id] for spec in specs] == [answer(spec) for spec in specs]
    assert engine.core.status(mesh.now).preemptions_total == 0


@pytest.mark.parametrize("pauses", [False, True])
def test_without_its_draft_model_an_engine_goes_on(make_spec: MakeSpec, pauses: bool):
    mesh = new_mesh()
    engine = mesh.add("e", num_blocks=64, services=BOTH)
    spec = make_spec("r", 8, max_tokens=100, first=2)
    mesh.submit("e", spec)
    while not held(engine)[OTHER]:
        mesh.step()
    mesh.deliver("placement", "e", UnloadService(OTHER, pauses))
    for _ in range(6):
        mesh.step()
    assert OTHER not in engine.core._services
    checks = speculation(engine).counts.num_checks
    for _ in range(6):
        mesh.step()
    assert speculation(engine).counts.num_checks == checks
    mesh.deliver("placement", "e", LoadService(OTHER))
    mesh.settle()
    assert mesh.streams["r"] == answer(spec)
    assert speculation(engine).counts.num_checks > checks


@each_seed(8)
def test_answers_are_right_where_memory_is_short_and_requests_move(make_spec: MakeSpec, seed: int):
    """Preempted, handed over, migrated, in slices, beside requests of the draft model's own."""
    dice = random.Random(seed)
    mesh = new_mesh(seed, drafts=dice.randint(1, 7))
    num_blocks, slices = dice.choice([12, 20, 48]), dice.choice([None, 8, 12])
    limits = {} if slices is None else {"slice_tokens": slices, "offload_bytes": 10**6}
    for name in "ab":
        role = dice.choice([Role.MULTIPLEX, Role.MULTIPLEX, Role.PREFILL]) if name == "a" else Role.MULTIPLEX
        mesh.add(name, role, num_blocks=num_blocks, services=BOTH, max_waiting=32, **limits)
    specs = []
    for number in range(12):
        num_tokens = dice.randint(2, num_blocks * BLOCK_SIZE // dice.choice([1, 2, 3]))
        num_prompt = dice.randint(1, num_tokens - 1)
        spec = make_spec(f"r{number}", num_prompt, num_tokens - num_prompt, first=100 * dice.randint(0, 2))
        specs.append(msgspec.structs.replace(spec, service=OTHER) if dice.random() < 0.2 else spec)
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
        assert held(engine) == dict.fromkeys(BOTH, 0)
