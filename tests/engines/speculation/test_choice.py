"""As many tokens are drafted as raise the rate of tokens, and none that break a promise."""

from math import inf

import pytest

from engines.costs.linear import decode_step_s
from engines.speculation.choice import Candidate, StepTime, drafts_for
from mesh.wire.status import DecodeCost

CHEAP, DEAR = DecodeCost(10e-3, 0.1e-3), DecodeCost(0.1e-3, 10e-3)
STEPS = DecodeCost(0.0, 0.0, table=((1, 8e-3), (4, 9e-3), (5, 14e-3), (8, 15e-3)))  # four rows cost little more


def time_of(cost: DecodeCost, num_decodes: int) -> StepTime:
    return lambda rows, context: decode_step_s(cost, num_decodes + rows, context)


def choose(cost: DecodeCost, *candidates: Candidate, num_decodes: int = 1, longest_s: float = inf) -> list[int]:
    return list(drafts_for(candidates, num_decodes, time_of(cost, num_decodes), longest_s))


def likely(chance: float, most: int = 7) -> Candidate:
    return Candidate(chance, most, 100)


def test_what_is_likely_and_cheap_is_drafted_in_full():
    assert choose(CHEAP, likely(0.95)) == [7]


def test_nothing_is_drafted_where_each_row_costs_a_step():
    assert choose(DEAR, likely(0.98)) == [0]


def test_nothing_unlikely_is_drafted():
    assert choose(CHEAP, likely(0.01)) == [0]


def test_fewer_are_drafted_the_less_likely_they_are():
    counts = [choose(CHEAP, likely(chance))[0] for chance in (0.2, 0.5, 0.8, 0.95)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_step_of_the_cost_curve_is_not_begun_for_little():
    assert choose(STEPS, likely(0.6)) == [3]


def test_a_step_of_the_cost_curve_is_taken_for_much():
    assert choose(STEPS, likely(0.98)) == [7]


def test_who_is_likelier_to_be_right_has_more():
    one, other = choose(DecodeCost(8e-3, 1e-3), likely(0.9), likely(0.5), num_decodes=2)
    assert one > other


def test_a_promise_of_others_bounds_the_step():
    assert choose(CHEAP, likely(0.95), longest_s=10.35e-3) == [2]
    assert choose(CHEAP, likely(0.95), longest_s=0.0) == [0]


@pytest.mark.parametrize("num_decodes", [1, 4, 16, 64])
def test_the_more_decodes_there_are_the_less_is_drafted_for_one(num_decodes: int):
    cost = DecodeCost(8e-3, 1e-3)
    alone, beside = choose(cost, likely(0.8)), choose(cost, likely(0.8), num_decodes=num_decodes)
    assert beside <= alone
