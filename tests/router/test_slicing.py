"""Slices on engine cores and a dispatcher: requests are kept, moved and offloaded, and no token changes."""

import random
from dataclasses import dataclass, field

import pytest

from kvtransfer.layout import block_bytes
from mesh.wire.control import Drain, Migrate, Role, UnloadService
from mesh.wire.requests import RequestSpec, Sampling
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE, SHAPE
from tests.router.test_migrations import MigratingMesh, assert_whole, losing
from tests.seeds import each_seed

SEEDS = 2
SLICE = 8
BLOCKS = 14  # of four tokens each
OFFLOAD_BYTES = 40 * block_bytes(SHAPE)


@dataclass
class SlicingMesh(MigratingMesh):
    """After each event, what was granted can be had, but where a request goes on without a grant (``is_exact``)."""

    limits: dict[str, int] = field(default_factory=dict)
    is_exact: bool = True
    most_offloaded: int = 0

    def perform(self, name, effects) -> None:
        super().perform(name, effects)
        core = self.engines[name].core
        self.most_offloaded = max(self.most_offloaded, core._slicing._offloading.num_bytes)
        for service in core._services.values():
            queue, pool = service.queue, service.pool
            runs = [*queue.running, *queue.restoring]
            assert len(queue.running) <= 2 * core._settings.limits.max_running  # migrations come beside those admitted
            assert all(len(one.blocks) >= pool.blocks_for(one.num_computed) for one in runs)
            coming = sum(pool.num_sole(one.blocks) for one in queue.offloading)
            others = [other.queue for other in core._services.values() if other is not service]
            if self.is_exact and not any(other.offloading for other in others):
                assert queue.growth_blocks <= pool.num_free + coming, repr(core)

    def revive(self, name: str, role: Role) -> None:
        self.incarnations[name] += 1
        self.add(name, role, **self.limits)


def make_mesh(seed: int, num_engines: int = 2, roles=(Role.MULTIPLEX,) * 3, **options) -> SlicingMesh:
    limits = {"num_blocks": BLOCKS, "slice_tokens": SLICE, "offload_bytes": OFFLOAD_BYTES, "max_running": 6}
    limits |= {key: options.pop(key) for key in (*limits, "services") if key in options}
    mesh = SlicingMesh(seed, **{"policy": "least_loaded", **options}, limits=limits)
    for name, role in zip(("a", "b", "c")[:num_engines], roles, strict=False):
        mesh.add(name, role, **limits)
    mesh.beat()
    while len(mesh.dispatcher._monitor.view().engines) < num_engines:
        mesh.tick()
    return mesh


def many(seed: int, count: int = 14, services=(SERVICE,), ttfts_s=(0.05, 0.5, 60.0)) -> list[RequestSpec]:
    dice = random.Random(seed)
    return [
        RequestSpec(
            f"r{number}",
            GATEWAY,
            dice.choice(services),
            list(range(number + 1, number + 1 + dice.randint(1, 14))),
            Sampling(max_tokens=dice.randint(1, 30), seed=1, temperature=0.0),
            dice.choice(ttfts_s),
            0.5,
            priority=dice.choice([0, 0, 0, 1]),
        )
        for number in range(count)
    ]


def tally(mesh: SlicingMesh, kind: str) -> int:
    return sum(getattr(engine.core._standing, kind) for engine in mesh.engines.values())


def serve(mesh: SlicingMesh, requests: list[RequestSpec]) -> None:
    for one in requests:
        mesh.route(one)
        mesh.tick()
    mesh.run_until_answered()


def tick_until_offloaded(mesh: SlicingMesh, place: str = "offloaded") -> tuple[str, str]:
    """Engine and request of the first one that stands there."""
    for _ in range(20_000):
        for name, engine in mesh.engines.items():
            for service in engine.core._services.values():
                if not engine.dead and (there := getattr(service.queue, place)):
                    return name, there[0].id
        mesh.tick()
    raise AssertionError("nobody is offloaded")


def assert_nothing_is_left(mesh: SlicingMesh) -> None:
    for engine in mesh.engines.values():
        if not engine.dead:
            assert not engine.kept, "KV is kept in host memory for nobody"
            assert engine.core._slicing._offloading.num_bytes == 0
            assert not any(service.pool.num_held for service in engine.core._services.values())
    assert mesh.most_offloaded <= OFFLOAD_BYTES


@pytest.mark.parametrize("num_engines", [1, 2])
@each_seed(SEEDS)
def test_tokens_are_those_of_an_undisturbed_run(seed: int, num_engines: int):
    mesh, requests = make_mesh(seed, num_engines), many(seed)
    serve(mesh, requests)
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)
    assert tally(mesh, "num_kept") > 0
    assert tally(mesh, "num_offloaded") > 0
    assert tally(mesh, "num_preempted") == 0, "nobody runs out of memory within a slice"


@each_seed(SEEDS)
def test_nothing_is_computed_again(seed: int):
    mesh, requests, num_computed = make_mesh(seed, 1), many(seed), 0
    execute = mesh.engines["a"].executor.execute

    def counting(batch):
        nonlocal num_computed
        num_computed += batch.num_tokens
        return execute(batch)

    mesh.engines["a"].executor.execute = counting
    serve(mesh, requests)
    assert tally(mesh, "num_offloaded") > 0
    assert num_computed == sum(one.num_tokens + one.sampling.max_tokens - 1 for one in requests)


def test_some_move_if_another_engine_has_room():
    meshes = [make_mesh(seed) for seed in range(8)]
    for seed, mesh in enumerate(meshes):
        serve(mesh, many(seed))
        assert_whole(mesh, many(seed))
    assert sum(tally(mesh, "num_moved") for mesh in meshes) > 0
    assert sum(mesh.tally("num_completed") for mesh in meshes) > 0


@each_seed(SEEDS)
def test_without_room_in_host_memory_requests_are_preempted_instead(seed: int):
    mesh, requests = make_mesh(seed, 1, offload_bytes=seed % 3 * block_bytes(SHAPE), is_exact=False), many(seed)
    serve(mesh, requests)
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)
    assert mesh.most_offloaded <= seed % 3 * block_bytes(SHAPE)


def test_preemption_is_what_offloading_replaces():
    offloaded, dropped = [make_mesh(0, 1, offload_bytes=size, is_exact=False) for size in (OFFLOAD_BYTES, 0)]
    for mesh in (offloaded, dropped):
        serve(mesh, many(0))
    assert (tally(offloaded, "num_preempted"), tally(dropped, "num_offloaded")) == (0, 0)
    assert tally(dropped, "num_preempted") > 0


@each_seed(SEEDS)
def test_kv_that_cannot_be_copied_is_computed_again(seed: int):
    dice = random.Random(seed)
    mesh, requests = make_mesh(seed, spoil=lambda: dice.random() < 0.5), many(seed)
    serve(mesh, requests)
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)
    assert tally(mesh, "num_preempted") > 0


@pytest.mark.parametrize("place", ["offloading", "offloaded", "restoring"])
@each_seed(SEEDS)
def test_a_request_cancelled_while_it_is_away_leaves_nothing(seed: int, place: str):
    mesh, requests = make_mesh(seed, 1), many(seed)
    for one in requests:
        mesh.route(one)
    _, request = tick_until_offloaded(mesh, place)
    mesh.do(mesh.dispatcher.cancel(request, mesh.now))
    del mesh.answers_of[request]
    mesh.run_until_answered()
    assert_whole(mesh, [one for one in requests if one.id != request])
    assert_nothing_is_left(mesh)


@pytest.mark.parametrize("place", ["offloading", "offloaded", "restoring"])
@each_seed(SEEDS)
def test_nothing_is_lost_if_an_engine_dies_while_requests_are_away(seed: int, place: str):
    mesh, requests = make_mesh(seed, 3), many(seed, 24)
    for one in requests:
        mesh.route(one)
    victim, _ = tick_until_offloaded(mesh, place)
    mesh.crash(victim)
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)


@each_seed(SEEDS)
def test_requests_of_a_gateway_that_seems_dead_go_back_to_it_offloaded_or_not(seed: int):
    mesh = make_mesh(seed, 1)
    for one in many(seed):
        mesh.route(one)
    tick_until_offloaded(mesh)
    mesh.perform("a", mesh.engines["a"].core.lose_peer(GATEWAY, mesh.now))
    assert not mesh.engines["a"].core._requests
    mesh.run_until_answered()
    assert_whole(mesh, many(seed))
    assert_nothing_is_left(mesh)


@pytest.mark.parametrize("undo", [False, True])
@each_seed(SEEDS)
def test_a_drained_engine_ends_up_empty(seed: int, undo: bool):
    mesh, requests = make_mesh(seed, 2), many(seed)
    for one in requests:
        mesh.route(one)
    name, _ = tick_until_offloaded(mesh)
    mesh.deliver("cli", name, Drain())
    for _ in range(20 if undo else 0):
        mesh.tick()
    if undo:
        mesh.deliver("cli", name, Drain(undo=True))
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)


@each_seed(SEEDS)
def test_an_unloaded_service_leaves_when_its_offloaded_requests_have_ended(seed: int):
    mesh, requests = make_mesh(seed, 1, services=(SERVICE, OTHER)), many(seed, 20, services=(OTHER,), ttfts_s=(60.0,))
    for one in requests:
        mesh.route(one)
    tick_until_offloaded(mesh)
    mesh.deliver("cli", "a", UnloadService(OTHER))
    assert not mesh.engines["a"].dropped
    mesh.run_until_answered()
    never_began = {one.id for one in requests if not mesh.answers_of[one.id]}
    assert mesh.errors.keys() == never_began, "no other engine has the service"
    mesh.errors.clear()
    assert_whole(mesh, [one for one in requests if one.id not in never_began])
    assert mesh.engines["a"].dropped == [OTHER]
    assert_nothing_is_left(mesh)


@each_seed(SEEDS)
def test_services_that_share_memory_keep_what_they_were_granted(seed: int):
    services = (SERVICE, OTHER)
    mesh, requests = make_mesh(seed, 2, services=services), many(seed, services=services)
    serve(mesh, requests)
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)
    assert tally(mesh, "num_offloaded") > 0
    assert tally(mesh, "num_preempted") == 0


@each_seed(SEEDS)
def test_prompts_that_were_computed_elsewhere_get_their_slices_here(seed: int):
    roles = (Role.PREFILL, Role.DECODE, Role.DECODE)
    mesh, requests = make_mesh(seed, 3, roles, policy="disaggregated", num_blocks=20), many(seed, ttfts_s=(60.0,))
    serve(mesh, requests)
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)
    assert tally(mesh, "num_kept") > 0


@each_seed(SEEDS)
def test_who_is_offloaded_says_so_to_those_who_want_to_move_it(seed: int):
    mesh = make_mesh(seed)
    for one in many(seed):
        mesh.route(one)
    name, request = tick_until_offloaded(mesh)
    other = "b" if name == "a" else "a"
    mesh.deliver("cli", name, Migrate(request, other, "test"))
    status = mesh.engines[name].core.status(mesh.now)
    assert status.last_aborted_migration == f"{request} to {other}: it is offloaded"
    assert status.num_offloaded > 0
    mesh.run_until_answered()
    assert_whole(mesh, many(seed))


@each_seed(6)
def test_everything_at_once_breaks_no_stream(seed: int):
    dice = random.Random(seed)
    mesh = make_mesh(
        seed,
        3,
        num_blocks=dice.choice([BLOCKS, 20, 26]),
        slice_tokens=dice.choice([1, 3, 8, 100]),
        offload_bytes=dice.choice([0, 5, 40]) * block_bytes(SHAPE),
        is_exact=False,
        lose=losing(dice),
        spoil=lambda: dice.random() < 0.05,
        twice=lambda: dice.random() < 0.05,
    )
    requests = many(seed, 20)
    for one in requests:
        mesh.route(one)
    victim, dies_at = dice.choice("abc"), dice.randrange(600)
    for step in range(900):
        if step == dies_at:
            mesh.crash(victim)
        mesh.tick()
        held = [(name, one) for name, e in mesh.engines.items() if not e.dead for one in e.core._requests]
        if held and dice.random() < 0.05:
            source, request = dice.choice(sorted(held))
            mesh.migrate(request, dice.choice("abc"), source)
    mesh.revive(victim, Role.MULTIPLEX)
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert_nothing_is_left(mesh)
