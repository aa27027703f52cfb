"""What the papers' comparisons share: means over seeds, runs that are made once, and turns."""

from dataclasses import dataclass

import msgspec
import pytest

from bench.live.http_load import Answer
from bench.papers.live import check_served, turned
from bench.papers.runs import mean_of, over_seeds, percentile, run_cases
from mesh.errors import UserError


@dataclass(frozen=True)
class Case:
    policy: str
    seed: int


class Part(msgspec.Struct, frozen=True):
    p99: float


class Result(msgspec.Struct, frozen=True):
    count: int
    mean: float
    parts: dict[str, Part]
    moved: dict[int, int]
    decisions: list[str]


ONE = Result(2, 1.0, {"all": Part(4.0)}, {0: 1, 3: 1}, ["keep"])
OTHER = Result(3, 2.0, {"all": Part(6.0)}, {0: 2, 1: 1}, ["change"])


def test_figures_are_averaged_counts_summed_and_lists_joined():
    assert mean_of([ONE, OTHER]) == Result(5, 1.5, {"all": Part(5.0)}, {0: 3, 3: 1, 1: 1}, ["keep", "change"])


def test_cases_that_differ_by_their_seed_are_one():
    found = over_seeds({Case("a", 0): ONE, Case("b", 0): ONE, Case("a", 1): OTHER})
    assert found == {Case("a", 0): mean_of([ONE, OTHER]), Case("b", 0): ONE}


def test_equal_cases_run_once():
    ran = []
    assert run_cases(lambda case: ran.append(case) or case.seed, [Case("a", 1), Case("a", 1), Case("a", 2)], 1) == {
        Case("a", 1): 1,
        Case("a", 2): 2,
    }
    assert ran == [Case("a", 1), Case("a", 2)]


def test_a_percentile_is_one_of_the_values():
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (0, 50, 95, 100)] == [1.0, 3.0, 4.0, 4.0]


def test_each_contender_is_first_in_its_turn():
    assert [turned("abc", by) for by in (0, 1, 3)] == [["a", "b", "c"], ["b", "c", "a"], ["a", "b", "c"]]


def test_a_request_that_was_not_served_in_full_ends_a_live_run():
    served, lost = Answer(0, 0.0, 200, 0.1, 0.2, {}), Answer(1, 0.0, 0, 0.1, 0.1, {})
    check_served([served])
    with pytest.raises(UserError, match="1 of 2 requests failed"):
        check_served([served, lost])
