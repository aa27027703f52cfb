"""A service that pauses gives up its weights before its requests: these keep their KV until another engine has it."""

import random

from engines.transfers.unloading import MOST_PAUSED_S
from mesh.wire.control import LoadService, UnloadService
from mesh.wire.requests import RefusalCode, Refused
from tests.engines.conftest import MakeSpec
from tests.engines.memory.test_residency import CLI, services, tell, two_engines
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import OTHER, SERVICE, continuation
from tests.seeds import each_seed


def decode(mesh: VirtualMesh, make_spec: MakeSpec, num_requests: int = 3) -> dict[str, list[int]]:
    """Requests of `OTHER` that decode on ``a``, and what they should say in all."""
    specs = [make_spec(f"r{i}", 5 + i, 30, first=100 * i, service=OTHER) for i in range(num_requests)]
    for spec in specs:
        mesh.submit("a", spec)
    while any(len(mesh.streams[spec.id]) < 2 for spec in specs):
        assert mesh.step()
    return {spec.id: continuation(spec.prompt, 30) for spec in specs}


def pause(mesh: VirtualMesh) -> None:
    """Until the weights of `OTHER` are gone from ``a``."""
    mesh.deliver(CLI, "a", UnloadService(OTHER, pauses=True))
    while OTHER not in mesh.engines["a"].weightless | set(mesh.engines["a"].dropped):
        assert mesh.step()


def refused(mesh: VirtualMesh) -> list[str]:
    return [answer.request for answer in mesh.answers if isinstance(answer, Refused)]


@each_seed(5)
def test_paused_requests_go_on_where_their_service_is_loaded(make_spec: MakeSpec, seed: int):
    mesh = two_engines(seed, b=(SERVICE,))
    wanted = decode(mesh, make_spec)
    pause(mesh)
    paused = services(mesh, "a")[OTHER]
    assert (paused.is_paused, paused.is_leaving, paused.num_running) == (True, True, 3)
    before = {name: list(mesh.streams[name]) for name in wanted}
    mesh.deliver(CLI, "b", LoadService(OTHER))
    while OTHER not in services(mesh, "b"):
        assert mesh.step()
    assert {name: mesh.streams[name][: len(said)] for name, said in before.items()} == before
    tell(mesh)
    mesh.settle()
    assert mesh.streams == wanted
    assert {name: mesh.finished_under[name].hop for name in wanted} == dict.fromkeys(wanted, 1)
    assert (mesh.engines["a"].dropped, refused(mesh)) == ([OTHER], [])


def test_nothing_of_a_paused_service_is_computed_and_others_go_on(make_spec: MakeSpec):
    mesh = two_engines(b=())
    decode(mesh, make_spec)
    pause(mesh)
    paused, other = mesh.engines["a"].core.residency.services[OTHER].queue.running, make_spec("other", 9, 5)
    before = {request.id: len(request.tokens) for request in paused}
    mesh.submit("a", other)
    while "other" not in mesh.finished:
        assert mesh.step()
    assert mesh.streams["other"] == continuation(other.prompt, 5)
    assert {request.id: len(request.tokens) for request in paused} == before
    status = mesh.engines["a"].core.status(mesh.now)
    assert (status.min_slack_s, status.decode_step_s) == (None, 0.0), "paused decodes have no slack to spare"


def test_a_paused_service_that_is_loaded_again_goes_on_where_it_stopped(make_spec: MakeSpec):
    mesh = two_engines(b=(SERVICE,))
    wanted = decode(mesh, make_spec)
    pause(mesh)
    mesh.deliver(CLI, "a", LoadService(OTHER))
    assert services(mesh, "a")[OTHER].is_leaving, "it takes nothing before its weights are there"
    mesh.settle()
    assert mesh.streams == wanted
    assert (mesh.engines["a"].dropped, refused(mesh)) == ([], [])
    assert not services(mesh, "a")[OTHER].is_paused


def test_weights_that_do_not_come_back_leave_the_service_paused(make_spec: MakeSpec):
    mesh = two_engines(b=())
    decode(mesh, make_spec)
    pause(mesh)
    mesh.deliver(CLI, "a", LoadService(OTHER))
    mesh._copies.clear()
    core = mesh.engines["a"].core
    core.not_loaded(OTHER, "its weights are corrupt", mesh.now)
    assert (services(mesh, "a")[OTHER].is_paused, core.status(mesh.now).loading) == (True, [])
    assert [failed.service for failed in core.status(mesh.now).failed_loads] == [OTHER]


def test_prompts_go_back_to_their_gateways_when_their_service_pauses(make_spec: MakeSpec):
    mesh = two_engines(b=())
    decode(mesh, make_spec, 1)
    for number in range(3):
        mesh.submit("a", make_spec(f"late{number}", 40, 4, first=500 + 100 * number, service=OTHER))
    pause(mesh)
    while mesh.step():
        pass
    assert set(refused(mesh)) == {"late0", "late1", "late2"}
    assert services(mesh, "a")[OTHER].num_running == 1


def test_what_no_engine_takes_goes_back_in_time(make_spec: MakeSpec):
    mesh = two_engines(b=())
    wanted = decode(mesh, make_spec)
    pause(mesh)
    paused_at = mesh.now
    mesh.settle()
    assert set(refused(mesh)) == set(wanted)
    assert {answer.code for answer in mesh.answers if isinstance(answer, Refused)} == {RefusalCode.DRAINING}
    assert (mesh.now, mesh.engines["a"].dropped) == (paused_at + MOST_PAUSED_S, [OTHER])


@each_seed(10)
def test_whatever_pauses_and_comes_back_tokens_are_right_and_nothing_leaks(make_spec: MakeSpec, seed: int):
    draw, mesh = random.Random(seed), two_engines(seed)
    specs = {}
    for number in range(12):
        service = draw.choice([SERVICE, OTHER])
        spec = make_spec(f"r{number}", draw.randint(1, 30), 12, first=100 * number, service=service)
        specs[spec.id] = spec
        mesh.submit(draw.choice("ab"), spec, draw.choice(["a", "b", None]))
        for _ in range(draw.randint(0, 30)):
            mesh.step()
        if draw.random() < 0.6:
            name = draw.choice([SERVICE, OTHER])
            order = draw.choice([LoadService(name), UnloadService(name), UnloadService(name, pauses=True)])
            mesh.deliver(CLI, draw.choice("ab"), order)
            tell(mesh)
    mesh.settle()
    given_back = set(refused(mesh))
    for name, spec in specs.items():
        expected = continuation(spec.prompt, 12)
        assert name in given_back or mesh.streams[name] == expected
        assert mesh.streams[name] == expected[: len(mesh.streams[name])]
