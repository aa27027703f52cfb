"""Engines that reschedule among themselves, with a dispatcher as gateway: who ends up where; no token is touched."""

import random
from collections import Counter

from mesh.rules import Trigger
from mesh.topology.schema import Rescheduling
from mesh.wire.control import Role
from mesh.wire.requests import RequestSpec, Sampling
from mesh.wire.transfers import Reserve
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE
from tests.router.test_migrations import ENGINES, MigratingMesh, assert_whole, losing, make_mesh, spec
from tests.seeds import each_seed

SEEDS = 2
MOST_MOVES = 8  # log2 of a life of a few seconds over the rest of 0.05 s
RULES = Rescheduling(give_below=24.0, take_above=48.0, interval_s=0.02, rest_s=0.05)


def submit_all_to(mesh: MigratingMesh, engine: str, requests: list[RequestSpec]) -> None:
    """The other engines are drained until all are sent."""
    others = [name for name in ENGINES if name != engine]
    views = mesh.dispatcher._monitor
    for one in requests:
        view = views.view()
        views.view = lambda view=view: view.without(others)
        mesh.route(one)
        del views.view


def moves(mesh: MigratingMesh) -> Counter[str]:
    """How often each request was asked to be taken."""
    return Counter(message.spec.id for message in mesh.sent if isinstance(message, Reserve))


def freeness(mesh: MigratingMesh) -> list[float]:
    return [engine.core.status(mesh.now).services[0].freeness for engine in mesh.engines.values()]


@each_seed(SEEDS)
def test_a_crowd_on_one_engine_spreads(seed):
    mesh = make_mesh(seed, num_blocks=64, rescheduling=RULES)
    requests = [spec(f"r{number}", 20, 60, 1 + number) for number in range(6)]
    submit_all_to(mesh, "a", requests)
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert mesh.tally("num_completed") >= 2
    assert sum(engine.core.status(mesh.now).preemptions_total for engine in mesh.engines.values()) == 0


@each_seed(SEEDS)
def test_the_crowd_is_preempted_without_rescheduling(seed):
    mesh = make_mesh(seed, num_blocks=64)
    requests = [spec(f"r{number}", 20, 60, 1 + number) for number in range(6)]
    submit_all_to(mesh, "a", requests)
    mesh.run_until_answered()
    assert mesh.engines["a"].core.status(mesh.now).preemptions_total > 0


@each_seed(SEEDS)
def test_a_large_request_that_waits_is_made_room_for(seed):
    """Where it waits, three others run that would fit elsewhere; nobody else could take it whole."""
    mesh = make_mesh(seed, num_blocks=64, rescheduling=RULES)
    small = [spec(f"r{number}", 40, 150, 1 + number) for number in range(3)]
    submit_all_to(mesh, "a", small)
    while not all(mesh.answers_of[one.id] for one in small):
        mesh.tick()
    large = spec("large", 200, 4, 50)
    submit_all_to(mesh, "a", [large])
    while not mesh.answers_of["large"]:
        mesh.tick()
    assert mesh.tally("num_completed") >= 1
    assert not all(one.id in mesh.finished for one in small), "it waited until the others had ended"
    mesh.run_until_answered()
    assert_whole(mesh, [*small, large])


@each_seed(SEEDS)
def test_others_leave_an_engine_with_high_priority(seed):
    mesh = make_mesh(seed, num_blocks=128, rescheduling=RULES)
    high = RequestSpec("high", GATEWAY, SERVICE, [7] * 20, Sampling(max_tokens=120, seed=1, temperature=0.0), 60, 1, 5)
    normal = [spec(f"r{number}", 30, 120, 1 + number) for number in range(4)]
    submit_all_to(mesh, "a", [high, *normal])
    mesh.run_until_answered()
    assert_whole(mesh, [high, *normal])
    assert "high" not in moves(mesh)
    assert len(moves(mesh)) >= 2


@each_seed(SEEDS)
def test_what_a_prefill_engine_decodes_goes_to_one_that_decodes(seed):
    mesh = make_mesh(
        seed, rescheduling=Rescheduling(triggers=(Trigger.ROLE,)), roles=(Role.PREFILL, Role.DECODE, Role.DECODE)
    )
    requests = [spec(f"r{index}", 3 + 5 * index, 30 + 9 * index, index + 1) for index in range(6)]
    submit_all_to(mesh, "a", requests)
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert mesh.tally("num_completed") == len(requests)


@each_seed(SEEDS)
def test_a_taker_that_two_givers_choose_is_never_left_with_too_little(seed):
    """Givers hear nothing of each other."""
    mesh = make_mesh(seed, num_blocks=64, rescheduling=RULES)
    requests = [spec(f"r{number}", 40, 60, 1 + number) for number in range(8)]
    submit_all_to(mesh, "a", requests[:4])
    submit_all_to(mesh, "b", requests[4:])
    while len(mesh.finished) < len(requests):
        before = freeness(mesh)[2]
        mesh.tick()
        after = freeness(mesh)[2]
        assert after >= min(before, RULES.give_below) - 2 * BLOCK_SIZE * 8, "a migration took it too far"
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert mesh.tally("num_completed") >= 1


@each_seed(SEEDS)
def test_under_constant_load_requests_move_few_times(seed):
    dice = random.Random(seed)
    mesh = make_mesh(seed, num_blocks=48, rescheduling=RULES)
    requests = [spec(f"r{number}", dice.randint(5, 40), dice.randint(20, 100), 1 + number) for number in range(40)]
    for one in requests:
        mesh.route(one)
        while len(mesh.answers_of) - len(mesh.finished) >= 9:
            mesh.tick()
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert max(moves(mesh).values(), default=0) <= MOST_MOVES, moves(mesh)


@each_seed(SEEDS)
def test_deaths_and_losses_beside_it_cost_no_token(seed):
    dice = random.Random(seed)
    mesh = make_mesh(seed, num_blocks=48, rescheduling=RULES, lose=losing(dice))
    requests = [spec(f"r{number}", 20, 60, 1 + number) for number in range(8)]
    submit_all_to(mesh, "a", requests)
    for _ in range(dice.randint(100, 600)):
        mesh.tick()
    mesh.crash(dice.choice(ENGINES[1:]))
    mesh.run_until_answered()
    assert_whole(mesh, requests)
