"""How many engines run while the load changes, and which."""

from itertools import pairwise
from math import ceil
from pathlib import Path

import pytest

from tests.router.scaling.worlds import START_S, World, write
from tests.seeds import each_seed

SEEDS = 1
RATE = 40.0


@each_seed(SEEDS, most=2)
@pytest.mark.parametrize("truth", [0.8, 1.3])
def test_at_constant_load_the_number_stays_what_it_is(tmp_path: Path, seed: int, truth: float):
    """Twenty minutes, after what it takes to learn that reckoning errs."""
    world = World(write(tmp_path), seed, truth)
    world.run(1500, RATE)
    settled, before = len(world.running), world.num_changes
    assert settled >= world.need()
    assert settled <= ceil(max(1.0, truth) * 1.35 * world.need() / truth)
    world.run(1200, RATE)
    assert world.num_changes - before == 0


@each_seed(SEEDS, most=2)
def test_a_burst_is_met_as_soon_as_engines_start(tmp_path: Path, seed: int):
    """Three times the load, within ten seconds."""
    world = World(write(tmp_path), seed)
    world.run(120, 12.0)
    world.run(10, lambda s: 12.0 + 2.4 * s)
    world.run(START_S + 10, 36.0)
    assert len(world.running) >= 0.85 * world.need()


def test_engines_are_for_what_requests_were_promised_and_not_for_what_their_service_promises(tmp_path: Path):
    usual, tight = World(write(tmp_path), 0), World(write(tmp_path), 0)
    tight.promised_tpot_s = 0.025
    for world in (usual, tight):
        world.run(120, 12.0)
        assert len(world.running) >= 0.85 * world.need()
    assert len(tight.running) > len(usual.running)


@each_seed(SEEDS, most=2)
def test_a_quiet_night_needs_few_and_the_morning_more(tmp_path: Path, seed: int):
    world = World(write(tmp_path), seed)
    world.run(100, 36.0)
    assert len(world.running) >= 4
    world.run(500, 0.2)
    assert len(world.running) == 1
    world.run(60, 36.0)
    assert len(world.running) >= world.need()


def test_a_limit_is_said_and_kept(tmp_path: Path):
    world = World(write(tmp_path, count=3, standby=2))
    world.run(200, 100.0)
    (pool,) = world.scaler.pools()
    assert (len(world.running), pool.num_wanted) == (3, 3)
    assert pool.problem == f"{ceil(pool.need)} engines are needed, there are 3"


def test_fewer_than_at_least_never_run(tmp_path: Path):
    path = write(tmp_path)
    path.write_text(path.read_text().replace("at_least = 1", "at_least = 4"))
    world = World(path)
    world.run(300)
    assert len(world.running) == 4
    world.ask("all-0", running=False)
    world.run(60)
    assert len(world.running) == 4


def test_an_engine_that_does_not_start_is_left_alone_for_long_and_others_start(tmp_path: Path):
    world = World(write(tmp_path))
    world.broken = {"all-1", "all-2"}
    world.run(600, RATE)
    assert len(world.running) >= 0.85 * world.need()
    asked = [at for at, engine, running in world.orders if engine == "all-1" and running]
    assert 1 <= len(asked) <= 3
    world = World(write(tmp_path, count=2, standby=1))
    world.broken = {"all-1"}
    world.run(300, 100.0)
    (pool,) = world.scaler.pools()
    assert pool.problem == "all-1 does not start: no model"
    gaps = [later - earlier for (earlier, *_), (later, *_) in pairwise(world.orders)]
    assert all(later > 1.5 * earlier - START_S for earlier, later in pairwise(gaps))
    world.broken = set()
    world.run(400, 100.0)
    assert len(world.running) == 2


def test_what_a_user_starts_is_stopped_again_when_it_was_not_needed_for_long(tmp_path: Path):
    world = World(write(tmp_path))
    world.run(100, 2.0)
    assert len(world.running) == 1
    world.ask("all-7", running=True)
    world.run(60)
    assert len(world.running) == 2
    world.run(60)
    assert len(world.running) == 1


def test_what_dies_is_replaced(tmp_path: Path):
    world = World(write(tmp_path))
    world.run(300, RATE)
    world.broken = {world.running[0]}
    world.children[world.running[0]] = "standby"
    world.run(60)
    assert len(world.running) >= world.need()
    assert world.broken.isdisjoint(world.running)


def test_nothing_is_done_before_supervisors_are_heard(tmp_path: Path):
    world = World(write(tmp_path))
    world.is_heard = False
    world.run(100, 60.0)
    assert world.orders == []
    assert world.scaler.pools()[0].problem == "not all of its supervisors were heard"


def test_the_last_engine_of_a_service_stays(tmp_path: Path):
    text = (
        write(tmp_path, count=3, standby=0)
        .read_text()
        .replace("[engines.all]", '[services.rare]\nmodel = "m"\n[engines.all]')
    )
    path = tmp_path / "two.toml"
    path.write_text(text)
    world = World(path)
    world.services = {engine: ["chat", "rare"] if engine == "all-1" else ["chat"] for engine in world.services}
    world.run(300, 1.0)
    assert world.running == ["all-1"]


def test_requests_that_wait_are_a_need_too(tmp_path: Path):
    world = World(write(tmp_path))
    world.run(300, 20.0)
    number = len(world.running)
    world.waiting = 400
    world.run(START_S + 5)
    assert len(world.running) > number


def test_engines_that_a_policy_that_packs_asks_for_start(tmp_path: Path):
    world = World(write(tmp_path))
    world.run(150, 2.0)
    assert len(world.running) == 1
    before = world.num_changes
    world.wanted = 2
    world.run(START_S)
    assert world.num_changes - before == 2
    world.wanted = 0
    world.run(2)
    assert len(world.running) == 3


def test_what_a_dead_gateway_waited_for_starts_nothing(tmp_path: Path):
    """Its last status asked for engines, and said that requests waited."""
    world = World(write(tmp_path))
    world.run(150, 2.0)
    world.wanted, world.waiting = 1, 400
    world.run(2)
    world.gateway_is_alive = False
    world.run(5 + START_S)
    before = world.num_changes
    world.run(30)
    started = [engine for _, engine, running in world.orders[before:] if running]
    assert not started


def test_utilisation_is_kept_near_its_target(tmp_path: Path):
    world = World(write(tmp_path, scaling='rule = "utilisation"\nutilisation = 0.5'))
    world.used = 2.2
    world.run(300, RATE)
    assert len(world.running) == 5


def test_freeness_is_kept_between_its_bounds(tmp_path: Path):
    bounds = f"low_freeness = {0.4 * 64000}\nhigh_freeness = {0.7 * 64000}"
    world = World(write(tmp_path, scaling=f'rule = "freeness"\n{bounds}'))
    world.used = 2.2
    world.run(300, RATE)
    assert len(world.running) == 4
    world.used = 0.5
    world.run(600, RATE)
    assert len(world.running) == 1
