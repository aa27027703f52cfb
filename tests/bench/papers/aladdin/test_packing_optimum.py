"""The exact solution, against trying everything; best fit is never better."""

from random import Random

import msgspec
import pytest

from bench.papers.aladdin.packing_optimum import (
    KINDS,
    Case,
    best_fit,
    grouped,
    knobs,
    make_case,
    make_engine,
    optimum,
    shortest_queue,
)
from router.policies.parts.bins import all_levels, broken


def partitions(items):
    """Of a list into non-empty parts."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for parts in partitions(rest):
        yield [[first], *parts]
        for index, part in enumerate(parts):
            yield [*parts[:index], [first, *part], *parts[index + 1 :]]


def fits(kind, requests):
    others = make_engine(kind, 0, requests[:-1])
    return broken(all_levels(requests[-1], others, knobs(), 0.0)) is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_trying_everything(kind, seed):
    case = make_case(kind, 7, Random(seed))
    least = min(len(parts) for parts in partitions(list(case.requests)) if all(fits(kind, part) for part in parts))
    found = optimum(case, len(case.requests))
    assert found == least <= best_fit(case) <= len(case.requests)
    assert least <= shortest_queue(case)


def test_one_group_is_all_and_more_groups_never_take_less_than_the_optimum():
    case = make_case(KINDS[1], 12, Random(5))
    assert grouped(case, 1) == best_fit(case)
    assert grouped(case, 3) >= optimum(case, 12)


def test_requests_that_are_alike_fill_engines_one_by_one():
    case = make_case(KINDS[0], 1, Random(1))
    alike = Case(case.kind, [replace_id(case.requests[0], n) for n in range(9)])
    assert best_fit(alike) == optimum(alike, 9)


def replace_id(request, number):
    return msgspec.structs.replace(request, id=f"r{number:03}")
