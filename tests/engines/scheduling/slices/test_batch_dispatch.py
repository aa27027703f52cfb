"""Batches go where the least is to be done, and take what was predicted of them along."""

from random import Random

import pytest

from engines.scheduling.slices.batch_dispatch import Loads, interval_s, offload_max_min
from tests.seeds import each_seed

ENGINES = [f"engine-{index}" for index in range(4)]


def always(serving_s):
    return lambda engine: serving_s


@each_seed(range(40))
def test_loads_differ_by_the_last_batch_at_most(seed):
    random, loads = Random(seed), Loads()
    serving_s = {number: random.uniform(0.1, 9) for number in range(random.randint(4, 40))}
    chosen = offload_max_min({number: always(each_s) for number, each_s in serving_s.items()}, ENGINES, loads)
    assert chosen.keys() == serving_s.keys()
    for engine in ENGINES:
        assert loads.of(engine) == pytest.approx(
            sum(serving_s[number] for number in chosen if chosen[number] == engine)
        )
        last = min((serving_s[number] for number in chosen if chosen[number] == engine), default=0.0)
        assert loads.of(engine) - last <= min(map(loads.of, ENGINES)) + 1e-9


def test_the_longest_go_first():
    assert offload_max_min({0: always(1.0), 1: always(2.0), 2: always(3.0)}, ["a", "b"], Loads()) == {
        2: "a",
        1: "b",
        0: "b",
    }


def test_each_engine_counts_a_batch_as_long_as_it_takes_there():
    loads = Loads()
    loads.add("before", "fast", 0.5)
    slow = {"fast": 1.0, "slow": 4.0}.__getitem__
    assert offload_max_min({"first": slow, "second": slow}, ["fast", "slow"], loads) == {
        "first": "slow",
        "second": "fast",
    }
    assert (loads.of("fast"), loads.of("slow")) == (1.5, 4.0)


@each_seed(range(20))
def test_errors_leave_with_their_batches(seed):
    random, loads, held = Random(seed), Loads(), {}
    for number in range(300):
        if random.random() < 0.5:
            held[number] = random.choice(ENGINES), random.uniform(0.01, 5)
            loads.add(number, *held[number])
        elif held:
            done = random.choice(list(held))
            del held[done]
            loads.give_back(done)
            loads.give_back(done)
        for engine in ENGINES:
            expected_s = sum(load_s for of, load_s in held.values() if of == engine)
            assert loads.of(engine) == pytest.approx(expected_s, abs=1e-9)
            assert expected_s or loads.of(engine) == 0.0


def test_the_interval_follows_the_least_loaded_engine():
    loads = Loads()
    assert interval_s(loads, ["a", "b"], 0.5, 3.0) == 3.0
    loads.add(0, "a", 20.0)
    assert interval_s(loads, ["a", "b"], 0.5, 3.0) == 3.0
    loads.add(1, "b", 10.0)
    assert interval_s(loads, ["a", "b"], 0.5, 3.0) == 5.0
