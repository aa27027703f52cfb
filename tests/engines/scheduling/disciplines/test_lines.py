"""Lines against a list that is sorted anew, and how many comparisons they take."""

import random
from math import log2

import pytest

from engines.scheduling.disciplines.entrant import Entrant
from engines.scheduling.disciplines.lines import Lines
from engines.scheduling.disciplines.waits import Waits
from tests.engines.scheduling.disciplines.serving import request
from tests.seeds import each_seed


class Counted(float):
    """A place that counts how often places are compared."""

    num = 0

    def __eq__(self, other: object) -> bool:
        Counted.num += 1
        return float(self) == other

    def __lt__(self, other: float) -> bool:
        Counted.num += 1
        return float(self) < float(other)

    __hash__ = float.__hash__


def entrants(num: int) -> list[Entrant]:
    return [Entrant(request(f"{index}", "s", float(index)), index) for index in range(num)]


@each_seed(range(30))
def test_the_heads_are_the_first_of_each_line_whatever_happens(seed: int):
    draw = random.Random(seed)
    lines, everybody, here = Lines(), entrants(40), set[Entrant]()
    for _ in range(400):
        one = draw.choice(everybody)
        if one in here and draw.random() < 0.3:
            lines.remove(one)
            here.discard(one)
        elif draw.random() < 0.3:
            batch = [other for other in here if draw.random() < 0.5]
            for other in batch:
                other.place -= draw.randrange(2)
                other.level += draw.random() < 0.1
            lines.moved(batch)
        else:
            one.level, one.place = draw.randrange(3), float(draw.randrange(10))
            one.request.num_computed = draw.choice((0, 2))  # prefills, or decodes
            lines.put(one)
            here.add(one)
        keys = {(other.request.is_decoding, other.level) for other in here}
        wanted = {
            min(
                (other for other in here if (other.request.is_decoding, other.level) == key),
                key=lambda other: (other.place, other.number),
            )
            for key in keys
        }
        assert set(lines.heads()) == wanted
        assert len(lines) == lines.num_of("s") == len(here)
        lines.check_invariants()


@pytest.mark.parametrize("num", [100, 1000, 4000])
def test_comparisons_grow_with_the_logarithm_of_the_number_of_requests(num: int):
    draw = random.Random(num)
    lines, everybody = Lines(), entrants(num)
    for one in everybody:
        one.place = Counted(draw.random())
        lines.put(one)
    Counted.num = 0
    num_events = 3 * num
    for _ in range(num_events):
        one = draw.choice(everybody)
        one.place = Counted(draw.random())
        lines.put(one)
        lines.heads()
    assert Counted.num / num_events < 6 * log2(num)


@pytest.mark.parametrize("num_batched", [1, 30, 500, 1000])
def test_what_a_batch_costs_grows_with_the_batch_not_with_those_that_wait(num_batched: int):
    draw = random.Random(num_batched)
    lines, everybody = Lines(), entrants(1000)
    for one in everybody:
        one.place = Counted(draw.random())
        lines.put(one)
    Counted.num = 0
    for _ in range(20):
        batch = draw.sample(everybody, num_batched)
        for one in batch:
            one.place = Counted(one.place - 0.01)
        lines.moved(batch)
        lines.heads()
    assert Counted.num / 20 / num_batched < 6 * log2(1000)


def test_a_head_that_runs_step_by_step_leaves_nothing_behind():
    """Places get smaller with every step, so that no stale entry ever comes to the head."""
    lines, everybody = Lines(), entrants(50)
    for step in range(500):
        for one in everybody:
            one.place = -float(step)
            lines.put(one)
            lines.check_invariants()
    lines.check_invariants()
    assert len(lines) == 50


@each_seed(range(20))
def test_who_has_waited_longest_is_found_though_waiting_stops_while_requests_run(seed: int):
    draw = random.Random(seed)
    waits, here, now = Waits(lambda service: 20.0), list[Entrant](), 0.0
    for number in range(300):
        now += draw.random()
        one = Entrant(request(f"{number}", draw.choice("ab"), now), number)
        waits.came(one)
        here.append(one)
        for other in draw.sample(here, min(3, len(here))):
            other.used_s += draw.random()
        if draw.random() < 0.7:
            gone = here.pop(draw.randrange(len(here)))
            gone.is_here = False
            waits.ended(gone)
        starved = [other for other in here if now - other.request.came_at - other.used_s > 20.0]
        longest = {
            min((other for other in starved if other.service == service), key=lambda other: other.waits_since)
            for service in {other.service for other in starved}
        }
        assert set(waits.starved(now)) == longest
