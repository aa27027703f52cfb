from itertools import product
from random import Random

import pytest

from router.policies.parts.error_lines import ErrorLine, Movable, rebalanced, total_distance
from tests.seeds import each_seed


def sampled(random, num_engines, num_movable):
    costs = random.uniform(1e-6, 1e-5), random.uniform(1e-4, 1e-3)
    lines = {
        f"e{number}": ErrorLine(*costs, random.randrange(-2000, 2000), random.randrange(-5, 6))
        for number in range(num_engines)
    }
    movable = [
        Movable(f"r{number}", random.choice(list(lines)), random.randrange(10, 900)) for number in range(num_movable)
    ]
    return lines, movable


def after(lines, movable, targets):
    lines = dict(lines)
    for one, to in zip(movable, targets, strict=True):
        lines[one.engine] = lines[one.engine].moved(-one.answer_tokens, -1)
        lines[to] = lines[to].moved(one.answer_tokens, 1)
    return total_distance(lines)


def test_the_distance_is_that_of_the_line_from_the_origin():
    """0.003 tokens s + 0.004 requests s, over a norm of 0.005."""
    assert ErrorLine(3e-3, 4e-3, 1, 1).distance == pytest.approx(1.4)
    assert ErrorLine(0.0, 0.0, 5, 5).distance == 0


def test_from_more_to_less_until_it_evens_out():
    """In ms: 12 and -6, and requests of 5: 7 and -1, then 2 and 4; one more would make it -3 and 9."""
    errors = {"a": (1000, 2), "b": (-500, -1), "c": (0, 0)}
    lines = {engine: ErrorLine(1e-5, 1e-3, *error) for engine, error in errors.items()}
    movable = [Movable(name, "a", 400) for name in ("r1", "r2", "r3")]
    assert [(move.request, move.to) for move in rebalanced(lines, movable)] == [("r1", "b"), ("r2", "b")]


@each_seed(range(100))
def test_the_sum_of_distances_falls_and_is_near_the_least_possible(seed):
    lines, movable = sampled(Random(seed), 3, 5)
    moves = {move.request: move.to for move in rebalanced(lines, movable)}
    assert set(moves) <= {one.request for one in movable}
    mine = after(lines, movable, [moves.get(one.request, one.engine) for one in movable])
    least = min(after(lines, movable, targets) for targets in product(lines, repeat=len(movable)))
    before = total_distance(lines)
    assert mine < before or not moves
    assert before - mine >= 0.5 * (before - least) - 1e-9


@each_seed(range(20))
def test_it_comes_to_rest_and_is_deterministic(seed):
    lines, movable = sampled(Random(seed), 4, 20)
    moves = rebalanced(lines, movable)
    assert moves == rebalanced(lines, list(reversed(movable)))
    assert len({move.request for move in moves}) == len(moves)
    assert all(move.origin != move.to for move in moves)


def test_nothing_moves_where_nothing_is_wrong():
    lines = {"a": ErrorLine(1e-5, 1e-3, 0, 0), "b": ErrorLine(1e-5, 1e-3, -900, -2)}
    assert rebalanced(lines, [Movable("r", "a", 100)]) == []
