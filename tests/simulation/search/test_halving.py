"""Searches of candidates whose attainment is known, with noise of samples that all candidates share."""

from random import Random

import pytest

from simulation.search.evidence import Keeping, SampleResult
from simulation.search.halving import FEW, Halving, SearchEffort, layers

GOAL = 0.9
EFFORT = SearchEffort(GOAL, 0.95, 6000, 15)


class World:
    """Candidates with ``uses`` of the promise in the long run; short samples flatter by ``flattery``."""

    def __init__(self, uses, noise=0.05, flattery=0.0, seed=0):
        self.uses, self.noise, self.flattery, self.seed = uses, noise, flattery, seed

    def result(self, one, num_requests, seed):
        shared = Random(f"{self.seed}/{seed}/{num_requests}").gauss(0, self.noise)
        own = Random(f"{self.seed}/{seed}/{num_requests}/{one}").gauss(0, self.noise / 3)
        share = max(0.0, 1 - num_requests / EFFORT.lengths(1)[-1])
        use = self.uses[one] * (1 + shared + own) * (1 - self.flattery * share)
        return SampleResult(min(1.0, max(0.0, GOAL + (1 - use) * 0.3)), use, 1.0, num_requests)


def search(prices, world, effort=EFFORT):
    halving = Halving(prices, effort)
    rounds = []
    while (asked := halving.next_round()) is not None:
        rounds.append(asked)
        seeds = asked.seeds
        halving.tell(
            asked, {one: [world.result(one, asked.num_requests, seed) for seed in seeds] for one in asked.candidates}
        )
        assert len(rounds) < 200
    return halving, rounds


def random_world(seed, count=200):
    """Dearer ones use less, more or less."""
    random = Random(seed)
    prices = [float(random.randint(1, 20)) for _ in range(count)]
    uses = [10 / price * random.uniform(0.6, 2.0) for price in prices]
    return prices, uses


def test_rounds_get_longer_and_fewer_take_part():
    prices, uses = random_world(1)
    _, rounds = search(prices, World(uses))
    lengths = [one.num_requests for one in rounds]
    assert lengths == sorted(lengths)
    last = [one for one in rounds if one.num_requests == lengths[-1]]
    assert len(last[0].candidates) <= max(FEW, len(prices) / 4)
    assert set(last[0].candidates) <= {one for asked in rounds[:-1] for one in asked.candidates}


@pytest.mark.parametrize("flattery", [0.0, 0.2])
def test_it_finds_the_cheapest_that_keeps_the_promise(flattery):
    """Candidates within the noise of the goal are nobody's fault: none is that near."""
    for seed in range(20):
        prices, uses = random_world(seed)
        clear = [use if abs(use - 1) > 0.15 else use * 1.4 for use in uses]
        halving, _ = search(prices, World(clear, flattery=flattery, seed=seed))
        best = min(price for price, use in zip(prices, clear, strict=True) if use <= 1)
        assert halving.best is not None
        assert prices[halving.best] == best, seed


def test_it_simulates_a_tenth_of_the_grid():
    prices, uses = random_world(2)
    halving, _ = search(prices, World(uses))
    assert halving.num_simulated < 0.1 * len(prices) * EFFORT.num_requests


def test_all_samples_are_the_same_for_all_candidates():
    prices, uses = random_world(3)
    _, rounds = search(prices, World(uses))
    for asked in rounds[:-1]:
        assert list(asked.seeds) == list(range(EFFORT.num_samples))


def test_what_stays_open_and_would_be_cheaper_gets_more_samples():
    halving, rounds = search([1.0, 2.0], World([1.0, 0.5], noise=0.2, seed=4))
    assert halving.best == 1
    assert halving.keeping[0] is Keeping.OPEN
    drawn = [list(asked.seeds) for asked in rounds if 0 in asked.candidates]
    assert [seed for seeds in drawn for seed in seeds] == list(range(4 * EFFORT.num_samples))
    assert len(halving.tried[0].results) == 4 * EFFORT.num_samples
    assert len(halving.tried[1].results) == EFFORT.num_samples


def test_if_short_samples_flattered_all_the_dearer_ones_have_their_turn():
    prices = [float(number + 1) for number in range(100)]
    uses = [1.2 if price < 80 else 0.8 for price in prices]
    halving, _ = search(prices, World(uses, noise=0.01, flattery=0.9))
    assert halving.best is not None
    assert prices[halving.best] == 80


def test_nothing_is_found_where_nothing_keeps_the_promise():
    halving, _ = search([1.0, 2.0, 3.0] * 30, World([3.0] * 90))
    assert halving.best is None
    assert all(keeping is Keeping.BREAKS for keeping in halving.keeping.values())


def test_those_that_samples_do_not_tell_apart_are_equals():
    halving, _ = search([1.0, 1.0, 1.0, 2.0], World([0.5, 0.5, 0.9, 0.5]))
    assert halving.best in (0, 1)
    assert {halving.best, *halving.equals} == {0, 1}


def test_a_recording_that_is_too_short_for_rounds_has_one():
    few = SearchEffort(GOAL, 0.95, 60, 15)
    assert few.lengths(200) == [10]
    halving, rounds = search([1.0, 2.0], World([2.0, 0.5]), few)
    assert (halving.best, len(rounds)) == (1, 1)


def test_layers_are_what_only_earlier_layers_beat():
    points = {0: (1.0, 3.0), 1: (2.0, 2.0), 2: (2.0, 3.0), 3: (3.0, 3.0), 4: (1.0, 3.0)}
    assert list(layers(points)) == [[0, 1, 4], [2], [3]]
