"""Services share an engine's memory by the page: tokens are right, nothing leaks, and nobody starves for ever."""

import random

import pytest

from mesh.wire.control import Migrate
from mesh.wire.requests import RequestSpec
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, OTHER, SERVICE, SLOTS, continuation
from tests.seeds import each_seed

BOTH = (SERVICE, OTHER)


def tokens(mesh: VirtualMesh, specs: list[RequestSpec]) -> dict[str, list[int]]:
    return {spec.id: mesh.streams[spec.id] for spec in specs}


def continuations(specs: list[RequestSpec]) -> dict[str, list[int]]:
    return {spec.id: continuation(spec.prompt, spec.sampling.max_tokens) for spec in specs}


def num_preempted(mesh: VirtualMesh, engine: str = "a") -> int:
    return mesh.engines[engine].core.status(mesh.now).preemptions_total


@pytest.mark.parametrize("service", BOTH)
def test_one_service_may_fill_the_memory_of_all(make_spec: MakeSpec, service: str):
    mesh = VirtualMesh()
    mesh.add("a", num_blocks=6, services=BOTH)
    capacity = 6 * SLOTS[service] * BLOCK_SIZE
    spec = make_spec("r", 5, capacity - 5, service=service)
    mesh.submit("a", spec)
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, capacity - 5)
    assert num_preempted(mesh) == 0


def test_what_decodes_is_told_of_each_service(make_spec: MakeSpec):
    mesh = VirtualMesh()
    core = mesh.add("a", num_blocks=16, services=BOTH).core
    mesh.submit("a", make_spec("r", 4, 8, service=OTHER))
    told = []
    while "r" not in mesh.finished:
        mesh.step()
        told.append({one.name: one.num_decoding for one in core.status(mesh.now).services})
    assert {SERVICE: 0, OTHER: 1} in told
    assert {SERVICE: 0, OTHER: 0} in told


@pytest.mark.parametrize("order", [(SERVICE, OTHER), (OTHER, SERVICE)])
def test_of_two_services_that_want_each_others_memory_the_later_one_gives_way(
    make_spec: MakeSpec, order: tuple[str, str]
):
    """Each has one request, and neither has another one to preempt."""
    mesh = VirtualMesh()
    mesh.add("a", num_blocks=8, services=BOTH)
    sizes = {SERVICE: (3, 21), OTHER: (36, 30)}  # six pages each in the end
    specs = [
        make_spec(f"r{number}", *sizes[service], first=100 * number, service=service)
        for number, service in enumerate(order)
    ]
    mesh.submit("a", specs[0])
    mesh.now = 0.001
    mesh.submit("a", specs[1])
    mesh.settle()
    assert tokens(mesh, specs) == continuations(specs)
    assert list(mesh.finished) == ["r0", "r1"]
    assert num_preempted(mesh) == 1


def test_priority_counts_before_arrival_when_memory_is_short(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("a", num_blocks=8, services=BOTH)
    lowly = make_spec("lowly", 3, 60, service=OTHER)
    urgent = make_spec("urgent", 3, 21, first=100, service=SERVICE, priority=1)
    mesh.submit("a", lowly)
    for _ in range(20):
        mesh.step()
    mesh.submit("a", urgent)
    mesh.settle()
    assert tokens(mesh, [lowly, urgent]) == continuations([lowly, urgent])
    assert list(mesh.finished) == ["urgent", "lowly"]


def test_nobody_gives_way_whose_memory_is_a_prefix_that_others_hold_too(make_spec: MakeSpec):
    """It would be preempted for nothing: the more urgent one could not begin."""
    mesh = VirtualMesh()
    mesh.add("a", num_blocks=20)
    common = list(range(8 * BLOCK_SIZE))
    both = [make_spec(f"r{n}", 0, 12, prompt=[*common, 500 + n], priority=n) for n in range(2)]
    urgent = make_spec("urgent", 12 * BLOCK_SIZE, 4, first=300, priority=1)
    for spec in (*both, urgent):
        mesh.submit("a", spec)
        for _ in range(4):
            mesh.step()
    mesh.settle()
    assert num_preempted(mesh) == 0
    assert tokens(mesh, [*both, urgent]) == continuations([*both, urgent])


def test_small_requests_of_one_service_do_not_keep_a_large_one_of_another_waiting(make_spec: MakeSpec):
    """They come for ever, two at a time, and each alone would fit beside the others."""
    mesh = VirtualMesh()
    mesh.add("a", num_blocks=16, services=BOTH)
    large = make_spec("large", 12 * BLOCK_SIZE, 2, first=500)
    small = [make_spec(f"r{i}", 20, 16, first=i, service=OTHER) for i in range(200)]
    for spec in small[:6]:
        mesh.submit("a", spec)
    for _ in range(30):
        mesh.step()
    mesh.submit("a", large)
    coming = iter(small[6:])
    while "large" not in mesh.finished:
        waiting = len(mesh.engines["a"].core._services[OTHER].queue.waiting)
        for _ in range(2 - waiting):
            mesh.submit("a", next(coming))
        assert mesh.step()
    assert len(mesh.finished) < 30
    mesh.settle()


def test_a_service_at_its_quota_takes_no_memory_from_another(make_spec: MakeSpec):
    """Its burst waits for itself, and what the other one has is there at once."""
    mesh = VirtualMesh()
    engine = mesh.add("a", num_blocks=8, services=BOTH, quotas={OTHER: 0.5}, max_running=16)
    burst = [make_spec(f"r{i}", 4 * BLOCK_SIZE, 8, first=100 * i, service=OTHER) for i in range(12)]
    for spec in burst:
        mesh.submit("a", spec)
    for _ in range(10):
        mesh.step()
    assert engine.core._services[OTHER].queue.waiting
    quiet = make_spec("quiet", 3 * BLOCK_SIZE, 4, first=5000)
    mesh.submit("a", quiet)
    assert engine.core._services[SERVICE].pool.num_free >= 4
    mesh.settle()
    assert tokens(mesh, [*burst, quiet]) == continuations([*burst, quiet])
    assert next(iter(mesh.finished)) != "r11"
    assert list(mesh.finished).index("quiet") < len(burst)


def test_what_is_longer_than_a_quota_is_refused_and_says_how_much_there_is(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("a", num_blocks=8, services=BOTH, quotas={SERVICE: 0.25})
    mesh.submit("a", make_spec("long", 3 * BLOCK_SIZE, 4))
    mesh.settle()
    [refused] = [answer for answer in mesh.answers if hasattr(answer, "code")]
    assert refused.reason.endswith(f"do not fit the KV pool of {2 * BLOCK_SIZE}")


@each_seed(range(30))
def test_with_quotas_tokens_are_right_and_nobody_waits_for_ever(make_spec: MakeSpec, seed: int):
    """Quotas that overlap and quotas that leave room; requests of up to half of one."""
    dice, mesh = random.Random(seed), VirtualMesh(seed)
    quotas = {SERVICE: dice.choice([0.3, 0.5, 0.8]), OTHER: dice.choice([0.3, 0.5, 0.8])}
    engine = mesh.add("a", num_blocks=12, services=BOTH, quotas=quotas, max_waiting=32)
    specs = []
    for number in range(16):
        service = dice.choice(BOTH)
        most = int(quotas[service] * 12) * SLOTS[service] * BLOCK_SIZE // 2
        num_prompt = dice.randint(1, most - 2)
        first = 100 * dice.randint(0, 3)
        specs.append(
            make_spec(f"r{number}", num_prompt, dice.randint(1, most - num_prompt - 1), first, service=service)
        )
        mesh.submit("a", specs[-1])
        for _ in range(dice.randint(0, 15)):
            mesh.step()
            for name, held in engine.core._services.items():
                assert held.pool.num_blocks - held.pool.num_of_quota <= round(quotas[name] * 12) * SLOTS[name]
    mesh.settle()
    assert tokens(mesh, specs) == continuations(specs)


@each_seed(12, most=60)
def test_tokens_are_right_and_nothing_leaks_where_memory_is_short(make_spec: MakeSpec, seed: int):
    """Requests with common beginnings, cancelled by nobody, handed over and migrated between two engines."""
    dice, mesh = random.Random(seed), VirtualMesh(seed)
    num_pages = dice.choice([6, 8, 12])
    for name in "ab":
        mesh.add(name, num_blocks=num_pages, services=BOTH, max_waiting=32)
    specs = []
    for number in range(16):
        service = dice.choice(BOTH)
        num_tokens = dice.randint(2, num_pages * SLOTS[service] * BLOCK_SIZE // dice.choice([1, 2, 4]))
        num_prompt = dice.randint(1, num_tokens - 1)
        first = 100 * dice.randint(0, 3)
        specs.append(make_spec(f"r{number}", num_prompt, num_tokens - num_prompt, first=first, service=service))
        specs[-1] = specs[-1] if dice.random() < 0.7 else make_spec(specs[-1].id, 3, 5, first=first, service=service)
        mesh.submit(dice.choice("ab"), specs[-1], dice.choice("ab"))
        for _ in range(dice.randint(0, 25)):
            mesh.step()
        if dice.random() < 0.4:
            mesh.deliver("cli", dice.choice("ab"), Migrate(dice.choice(specs).id, dice.choice("ab"), "by hand"))
    mesh.settle()
    refused = {answer.request for answer in mesh.answers if hasattr(answer, "code")}
    served = [spec for spec in specs if spec.id not in refused]
    assert tokens(mesh, served) == continuations(served)
    assert len(served) > len(specs) // 2
    for engine in mesh.engines.values():
        assert all(service.pool.num_held == 0 for service in engine.core._services.values())


def test_short_memory_is_met_in_the_random_runs(make_spec: MakeSpec):
    """Else they would show nothing: preemption of another service's request is what gets them on."""
    mesh = VirtualMesh(5)
    mesh.add("a", num_blocks=6, services=BOTH)
    specs = [make_spec(f"r{i}", 4, 16, first=100 * i, service=BOTH[i % 2]) for i in range(6)]
    for spec in specs:
        mesh.submit("a", spec)
    mesh.settle()
    assert tokens(mesh, specs) == continuations(specs)
    assert num_preempted(mesh) > 0


def test_who_begins_leaves_room_for_the_next_tokens_of_all_services(make_spec: MakeSpec):
    """Else it would be preempted for them at once."""
    mesh = VirtualMesh()
    core = mesh.add("a", num_blocks=32, services=BOTH).core
    services = core._services
    for number in range(7):
        mesh.submit("a", make_spec(f"r{number}", 4, 40, first=100 * number, service=BOTH[number % 2]))
    while any(not service.queue.running or service.queue.waiting for service in services.values()):
        assert mesh.step()
    assert [len(service.queue.running) for service in services.values()] == [4, 3]
    assert services[SERVICE].growth_elsewhere(services.values()) == 1, "three blocks are one page"
    assert services[OTHER].growth_elsewhere(services.values()) == 4 * SLOTS[OTHER]
