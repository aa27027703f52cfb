"""Services come to a running engine and leave it: others notice nothing, and no request is lost."""

import random

from engines.effects import DropModel, LoadModel, StageModel, UnstageModel
from engines.memory.residency import MOST_FAILED, Residency
from engines.scheduling.scheduler import Limits
from mesh.wire.control import LoadService, UnloadService
from mesh.wire.requests import Accepted, RefusalCode, Refused
from mesh.wire.status import ServiceStatus
from router.view.engine_view import engine_view
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import make_service
from tests.engines.virtual_memory import OTHER, SERVICE, VirtualMemory, continuation
from tests.seeds import each_seed

CLI = "mesh-cli"


def two_engines(seed: int = 0, **services: tuple[str, ...]) -> VirtualMesh:
    mesh = VirtualMesh(seed)
    for name in "ab":
        mesh.add(name, services=services.get(name, (SERVICE, OTHER)), max_running=16)
    tell(mesh)
    return mesh


def tell(mesh: VirtualMesh) -> None:
    """Everybody hears everybody's status."""
    for name, engine in mesh.engines.items():
        for other, hearer in mesh.engines.items():
            if other != name and hearer.core.observe(name, engine.core.status(mesh.now), mesh.now):
                mesh.perform(other, hearer.core.look(mesh.now))


def services(mesh: VirtualMesh, engine: str) -> dict[str, ServiceStatus]:
    return {service.name: service for service in mesh.engines[engine].core.status(mesh.now).services}


def test_what_is_offered_later_may_be_loaded():
    residency = Residency({}, Limits(max_running=1, chunk_tokens=1), {SERVICE})
    assert residency.load(OTHER) == []
    assert OTHER in residency.failed
    residency.offer({SERVICE, OTHER})
    assert residency.load(OTHER) == [LoadModel(OTHER)]


def test_what_is_offered_no_more_is_not_loaded():
    residency = Residency({}, Limits(max_running=1, chunk_tokens=1), {SERVICE, OTHER})
    residency.offer({SERVICE})
    assert residency.load(OTHER) == []
    assert residency.failed[OTHER].reason == f"this engine's topology has no such service; it has: {SERVICE}"


def test_a_load_that_failed_is_forgotten_with_the_service():
    residency = Residency({}, Limits(max_running=1, chunk_tokens=1), {SERVICE, OTHER})
    for name in (SERVICE, OTHER):
        residency.load(name)
        residency.not_loaded(name, "no memory")
    residency.unload(OTHER)
    assert list(residency.failed) == [SERVICE]
    residency.load(SERVICE)
    residency.unload(SERVICE)
    residency.not_loaded(SERVICE, "no memory")
    assert not residency.failed, "nobody wanted it any more when it failed"
    residency.load(SERVICE)
    residency.not_loaded(SERVICE, "no memory")
    assert list(residency.failed) == [SERVICE]


def test_a_loaded_service_serves(make_spec: MakeSpec):
    mesh = two_engines(a=(SERVICE,))
    spec = make_spec("r", 9, 5, service=OTHER)
    mesh.submit("a", spec)
    mesh.deliver(CLI, "a", LoadService(OTHER))
    assert mesh.engines["a"].core.status(mesh.now).loading == [OTHER]
    mesh.settle()
    assert [answer.code for answer in mesh.answers if isinstance(answer, Refused)] == [RefusalCode.UNKNOWN_SERVICE]
    assert set(services(mesh, "a")) == {SERVICE, OTHER}
    assert mesh.engines["a"].core.status(mesh.now).loading == []
    mesh.submit("a", spec, attempt=2)
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 5)


def test_to_load_what_is_here_or_on_its_way_changes_nothing(make_spec: MakeSpec):
    mesh = two_engines(a=(SERVICE,))
    for service in (SERVICE, OTHER, OTHER):
        mesh.deliver(CLI, "a", LoadService(service))
    assert mesh.engines["a"].core.status(mesh.now).loading == [OTHER]
    mesh.settle()
    assert set(services(mesh, "a")) == {SERVICE, OTHER}


def test_a_service_that_cannot_be_had_is_told_and_serving_goes_on(make_spec: MakeSpec):
    mesh = two_engines(a=(SERVICE,))
    mesh.deliver(CLI, "a", LoadService("elsewhere"))
    core = mesh.engines["a"].core
    [failed] = core.status(mesh.now).failed_loads
    assert failed == ("elsewhere", "this engine's topology has no such service; it has: other, tiny", 1)
    mesh.deliver(CLI, "a", LoadService(OTHER))
    mesh._copies.clear()
    core.not_loaded(OTHER, "its weights are corrupt", mesh.now)
    status = core.status(mesh.now)
    assert (status.loading, status.failed_loads) == ([], [failed, (OTHER, "its weights are corrupt", 2)])
    mesh.submit("a", make_spec("r"))
    mesh.settle()
    assert mesh.finished == {"r": "length"}
    mesh.deliver(CLI, "a", LoadService(OTHER))
    mesh.settle()
    assert core.status(mesh.now).failed_loads == [failed], "what was loaded since is not told any more"


def test_of_many_failed_loads_the_last_are_told():
    mesh = two_engines(a=(SERVICE,))
    for number in range(2 * MOST_FAILED):
        mesh.deliver(CLI, "a", LoadService(f"nothing {number}"))
    told = mesh.engines["a"].core.status(mesh.now).failed_loads
    assert [failed.number for failed in told] == list(range(MOST_FAILED + 1, 2 * MOST_FAILED + 1))


@each_seed(5)
def test_what_runs_moves_away_before_its_service_goes(make_spec: MakeSpec, seed: int):
    mesh = two_engines(seed)
    specs = [make_spec(f"r{i}", 5 + i, 30, first=100 * i, service=(SERVICE, OTHER)[i % 2]) for i in range(4)]
    for spec in specs:
        mesh.submit("a", spec)
    while any(len(mesh.streams[spec.id]) < 2 for spec in specs):
        assert mesh.step()
    mesh.deliver(CLI, "a", UnloadService(OTHER))
    assert services(mesh, "a")[OTHER].is_leaving
    mesh.settle()
    assert {spec.id: mesh.streams[spec.id] for spec in specs} == {
        spec.id: continuation(spec.prompt, 30) for spec in specs
    }
    assert mesh.engines["a"].dropped == [OTHER]
    assert set(services(mesh, "a")) == {SERVICE}
    hops = {spec.id: mesh.finished_under[spec.id].hop for spec in specs}
    assert hops == {"r0": 0, "r1": 1, "r2": 0, "r3": 1}


def test_what_nobody_else_serves_ends_here_first(make_spec: MakeSpec):
    mesh = two_engines(b=(SERVICE,))
    running, late = make_spec("r", 5, 20, service=OTHER), make_spec("late", 5, 20, service=OTHER)
    mesh.submit("a", running)
    mesh.step()
    mesh.deliver(CLI, "a", UnloadService(OTHER))
    mesh.submit("a", late)
    assert mesh.engines["a"].dropped == []
    mesh.settle()
    assert mesh.streams["r"] == continuation(running.prompt, 20)
    assert mesh.engines["a"].dropped == [OTHER]
    assert [answer.code for answer in mesh.answers if isinstance(answer, Refused)] == [RefusalCode.DRAINING]


def test_prompts_that_have_not_begun_are_sent_back_if_others_can_compute_them(make_spec: MakeSpec):
    mesh = two_engines()
    specs = [make_spec(f"r{i}", 40, 4, first=100 * i, service=OTHER) for i in range(3)]
    for spec in specs:
        mesh.submit("a", spec)
    mesh.step()
    mesh.deliver(CLI, "a", UnloadService(OTHER))
    mesh.settle()
    refused = {answer.request for answer in mesh.answers if isinstance(answer, Refused)}
    assert refused
    assert refused | set(mesh.finished) == {spec.id for spec in specs}


def test_loading_undoes_unloading(make_spec: MakeSpec):
    mesh = two_engines(b=(SERVICE,))
    mesh.submit("a", make_spec("r", 5, 20, service=OTHER))
    mesh.step()
    mesh.deliver(CLI, "a", UnloadService(OTHER))
    mesh.deliver(CLI, "a", LoadService(OTHER))
    mesh.settle()
    assert mesh.engines["a"].dropped == []
    assert not services(mesh, "a")[OTHER].is_leaving


def test_routers_do_not_see_what_is_leaving(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("a", make_spec("r", 5, 20, service=OTHER))
    mesh.step()
    mesh.deliver(CLI, "a", UnloadService(OTHER))
    assert set(engine_view("a", mesh.engines["a"].core.status(mesh.now), 0.0, ()).services) == {SERVICE}


@each_seed(10)
def test_whatever_comes_and_goes_tokens_are_right_and_nothing_leaks(make_spec: MakeSpec, seed: int):
    draw, mesh = random.Random(seed), two_engines(seed)
    specs = {}
    for number in range(12):
        spec = make_spec(
            f"r{number}", draw.randint(1, 30), 12, first=100 * number, service=draw.choice([SERVICE, OTHER])
        )
        specs[spec.id] = spec
        prefill, decode = draw.choice("ab"), draw.choice("ab")
        mesh.submit(prefill, spec, decode)
        for _ in range(draw.randint(0, 30)):
            mesh.step()
        if draw.random() < 0.5:
            mesh.deliver(
                CLI, draw.choice("ab"), draw.choice([LoadService, UnloadService])(draw.choice([SERVICE, OTHER]))
            )
            tell(mesh)
    mesh.settle()
    refused = {answer.request for answer in mesh.answers if isinstance(answer, Refused)}
    for name, spec in specs.items():
        expected = continuation(spec.prompt, 12)
        assert name in refused or mesh.streams[name] == expected
        assert mesh.streams[name] == expected[: len(mesh.streams[name])]
    accepted = {answer.request for answer in mesh.answers if isinstance(answer, Accepted)}
    assert len(accepted) > 3


def test_the_last_word_counts_while_a_service_is_on_its_way():
    residency = Residency({}, Limits(4, 64), {OTHER})
    residency.unload(OTHER)  # it is not here
    assert residency.load(OTHER) == [LoadModel(OTHER)]
    residency.unload(OTHER)
    residency.load(OTHER)
    residency.unload(OTHER)
    residency.loaded(make_service(OTHER, "a", VirtualMemory(8)))
    assert residency.drop(lambda service: True) == [DropModel(OTHER)]
    residency.load(OTHER)
    residency.unload(OTHER)
    residency.load(OTHER)
    residency.loaded(make_service(OTHER, "a", VirtualMemory(8)))
    assert residency.drop(lambda service: True) == []
    assert set(residency.services) == {OTHER}


def residency(*here: str) -> Residency:
    services = {name: make_service(name, "a", VirtualMemory(8)) for name in here}
    return Residency(services, Limits(4, 64), {SERVICE, OTHER})


def test_staged_weights_wait_until_they_are_loaded():
    one = residency(SERVICE)
    assert one.stage(OTHER) == [StageModel(OTHER)]
    assert one.stage(OTHER) == [], "it is on its way"
    assert (one.staging, one.staged) == ([OTHER], {})
    one.has_staged(OTHER, 7)
    assert (one.staging, one.staged) == ([], {OTHER: 7})
    assert one.stage(OTHER) == [], "it is there"
    assert one.load(OTHER) == [LoadModel(OTHER)]
    one.loaded(make_service(OTHER, "a", VirtualMemory(8)))
    assert (one.staged, one.stage(OTHER)) == ({}, []), "what is served needs no staging"


def test_a_load_that_fails_leaves_what_is_staged():
    one = residency()
    one.stage(OTHER)
    one.has_staged(OTHER, 7)
    one.load(OTHER)
    one.not_loaded(OTHER, "there is no room")
    assert one.staged == {OTHER: 7}


def test_weights_that_cannot_be_staged_are_told():
    one = residency()
    one.stage(OTHER)
    one.not_staged(OTHER, "its host has no memory left")
    assert (one.staging, one.staged) == ([], {})
    assert one.failed[OTHER].reason == "its host has no memory left"
    assert one.stage("elsewhere") == []
    assert one.failed["elsewhere"].reason.startswith("this engine's topology has no such service")


def test_a_plan_without_a_service_lets_go_of_its_staged_weights():
    one = residency()
    one.stage(OTHER)
    assert one.plan([SERVICE]) == []
    assert one.has_staged(OTHER, 7) == [UnstageModel(OTHER)], "nobody wants it when it comes"
    one.stage(OTHER)
    assert one.has_staged(OTHER, 7) == []
    assert one.plan([SERVICE, OTHER]) == []
    assert one.plan([SERVICE]) == [UnstageModel(OTHER)]
    assert one.staged == {}
