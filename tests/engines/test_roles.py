"""Roles that change while requests run: nothing is moved, and no token is lost or changed."""

from random import Random

import pytest

from engines.core import EngineCore
from engines.scheduling.batch import ChunkResult, StepResult
from mesh.topology.schema import Scheduling
from mesh.wire.control import Announce, EnginePlace, PrefillMode, PrefillOrder, Role, SetRole, UsualLengths
from mesh.wire.requests import Epoch, Submit
from mesh.wire.status import EngineStatus
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE, continuation
from tests.seeds import each_seed

SEEDS = 6


def one_engine(role: Role = Role.MULTIPLEX) -> tuple[VirtualMesh, EngineCore]:
    mesh = VirtualMesh()
    return mesh, mesh.add("only", role).core


def status(mesh: VirtualMesh, engine: str = "only") -> EngineStatus:
    return mesh.engines[engine].core.status(mesh.now)


def test_a_role_changes_at_once_and_the_status_says_so():
    mesh, _ = one_engine()
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0))
    assert (status(mesh).role, status(mesh).num_role_changes) == (Role.PREFILL, 1)


def test_of_several_gateways_that_saw_the_same_status_one_is_heard():
    mesh, _ = one_engine()
    mesh.deliver("gateway-1", "only", SetRole(Role.PREFILL, 0))
    mesh.deliver("gateway-2", "only", SetRole(Role.DECODE, 0))
    assert (status(mesh).role, status(mesh).num_role_changes) == (Role.PREFILL, 1)
    mesh.deliver("gateway-2", "only", SetRole(Role.DECODE, 1))
    assert (status(mesh).role, status(mesh).num_role_changes) == (Role.DECODE, 2)


def test_an_engine_with_static_batches_keeps_its_role_and_says_so():
    mesh = VirtualMesh()
    mesh.add("only", scheduling=Scheduling.STATIC)
    mesh.deliver("placement", "only", SetRole(Role.PREFILL, 0))
    assert (status(mesh).role, status(mesh).keeps_role) == (Role.MULTIPLEX, True)


def test_a_change_of_roles_that_did_not_know_of_a_plan_is_void():
    """What a plan or a command says goes in any case."""
    mesh, _ = one_engine()
    mesh.deliver("placement", "only", Announce(EnginePlace(3, 1, ("tiny",), Role.MULTIPLEX)))
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0, 2))
    assert (status(mesh).role, status(mesh).num_role_changes) == (Role.MULTIPLEX, 0)
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0, 3))
    mesh.deliver("placement", "only", SetRole(Role.DECODE, 1))
    assert (status(mesh).role, status(mesh).num_role_changes) == (Role.DECODE, 2)


def test_a_plan_tells_what_requests_of_its_services_are_like():
    """Plans that are older than the one that is known tell nothing."""
    mesh = VirtualMesh()
    core = mesh.add("only", scheduling=Scheduling.DB).core
    for number, prompt in ((3, 4000), (2, 1)):
        place = EnginePlace(number, 1, ("tiny",), Role.MULTIPLEX)
        mesh.deliver("placement", "only", Announce(place, (UsualLengths("tiny", prompt, 900), UsualLengths("o", 1, 1))))
    assert core._orders._usual["tiny"] == (4000, 900)
    assert "o" not in core._orders._usual


@pytest.mark.parametrize(("order", "expected"), [(PrefillOrder.ARRIVAL, "abc"), (PrefillOrder.DEADLINE, "cab")])
def test_a_prefill_engine_computes_one_prompt_at_a_time_of_whatever_service(make_spec, order, expected):
    """Without that, two prompts of services that take turns would both be computed twice as long as either."""
    core = VirtualMesh().add("only", Role.PREFILL, services=(SERVICE, OTHER)).core
    promises = {"a": (SERVICE, 2.0), "b": (OTHER, 3.0), "c": (SERVICE, 1.0)}
    for number, (name, (service, ttft_s)) in enumerate(promises.items()):
        spec = make_spec(name, 20, max_tokens=1, service=service, slo_ttft_s=ttft_s, first=100 * number)
        core.receive(GATEWAY, Submit(spec, Epoch(1), order=order), (), 0.1 * number)
    computed = ""
    while (batch := core.next_batch(1.0)[0]) is not None:
        computed += batch.chunks[0].request
        core.finish_step(
            StepResult([ChunkResult(7 if one.draw is not None else None) for one in batch.chunks], 0.0), 1.0
        )
    assert computed == "".join(3 * name for name in expected)


@pytest.mark.parametrize(("order", "expected"), [(PrefillOrder.ARRIVAL, "abab"), (PrefillOrder.DEADLINE, "bbaa")])
def test_an_engine_that_decodes_computes_the_prompts_that_go_by_deadline_in_their_order(make_spec, order, expected):
    """Of whatever service. The others are computed in the turns of their services."""
    core = VirtualMesh().add("only", services=(SERVICE, OTHER)).core
    for name, service, ttft_s in (("a", SERVICE, 3.0), ("b", OTHER, 1.0)):
        spec = make_spec(name, 16, max_tokens=1, service=service, slo_ttft_s=ttft_s)
        core.receive(GATEWAY, Submit(spec, Epoch(1), order=order), (), 0.0)
    computed = ""
    while (batch := core.next_batch(0.5)[0]) is not None:
        computed += batch.chunks[0].request
        core.finish_step(
            StepResult([ChunkResult(7 if one.draw is not None else None) for one in batch.chunks], 0.0), 0.5
        )
    assert computed == expected


def test_what_was_to_decode_on_an_engine_of_the_old_role_need_not_stay(make_spec: MakeSpec):
    mesh, core = one_engine()
    mesh.deliver(GATEWAY, "only", Submit(make_spec("r"), Epoch(1), stays=True))
    request = core._requests["r"]
    assert request.stays
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0))
    assert not request.stays


def test_the_role_that_it_has_is_no_change():
    mesh, _ = one_engine()
    mesh.deliver(GATEWAY, "only", SetRole(Role.MULTIPLEX, 0))
    assert status(mesh).num_role_changes == 0


def test_a_role_counts_from_the_next_iteration_on(make_spec: MakeSpec):
    mesh, core = one_engine()
    for name in ("a", "b"):
        mesh.submit("only", make_spec(name, 4, first=ord(name)))
    both, _ = core.next_batch(0.0)
    assert both is not None
    assert len(both.chunks) == 2
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0))
    mesh.perform("only", core.finish_step(mesh.engines["only"].executor.execute(both), 0.1))
    for name in ("c", "d"):
        mesh.submit("only", make_spec(name, 4, first=ord(name)))
    one_at_a_time, _ = core.next_batch(0.1)
    assert one_at_a_time is not None
    assert [chunk.request for chunk in one_at_a_time.chunks] == ["a", "b", "c"]


@pytest.mark.parametrize("mode", PrefillMode)
@each_seed(SEEDS)
def test_roles_that_change_at_any_moment_change_no_token(make_spec: MakeSpec, seed: int, mode: PrefillMode):
    mesh, random = VirtualMesh(seed), Random(seed)
    engines = [mesh.add("one"), mesh.add("other")]
    specs = [make_spec(f"r{index}", 3 + 5 * index, max_tokens=6 + 3 * index, first=index % 3) for index in range(6)]
    for index, spec in enumerate(specs):
        mesh.submit("one", spec, "other" if index % 2 else None, prefill=mode)
        for _ in range(random.randint(0, 30)):
            mesh.step()
        name, engine = random.choice(list(zip(mesh.engines, engines, strict=True)))
        mesh.deliver(GATEWAY, name, SetRole(random.choice(list(Role)), status(mesh, name).num_role_changes))
        engine.core.check_invariants()
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, spec.sampling.max_tokens)


def test_decodes_go_on_when_their_engine_becomes_a_prefill_engine(make_spec: MakeSpec):
    mesh, _ = one_engine()
    decoding, prefill = make_spec("decoding", 5, max_tokens=20), make_spec("prefill", 60, max_tokens=3, first=70)
    mesh.submit("only", decoding)
    while not mesh.streams["decoding"]:
        mesh.step()
    mesh.deliver(GATEWAY, "only", SetRole(Role.PREFILL, 0))
    mesh.submit("only", prefill, prefill=PrefillMode.FIRST)
    before = len(mesh.streams["decoding"])
    while not mesh.streams["prefill"]:
        mesh.step()
    assert len(mesh.streams["decoding"]) > before + 3  # a token with each of the prompt's chunks
    mesh.settle()
    assert mesh.streams["decoding"] == continuation(decoding.prompt, 20)
    assert mesh.streams["prefill"] == continuation(prefill.prompt, 3)
