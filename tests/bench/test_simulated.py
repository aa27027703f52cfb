"""What simulated benches share: means over seeds, and runs of cases."""

from dataclasses import dataclass

import msgspec

from bench.simulated import mean_of, over_seeds, percentile, run_cases


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


ONE = Result(2, 1.0, {"all": Part(4.0)}, {0: 1, 3: 1})
OTHER = Result(3, 2.0, {"all": Part(6.0)}, {0: 2, 1: 1})


def test_figures_are_averaged_and_counts_summed():
    assert mean_of([ONE, OTHER]) == Result(5, 1.5, {"all": Part(5.0)}, {0: 3, 3: 1, 1: 1})


def test_cases_that_differ_by_their_seed_are_one():
    found = over_seeds({Case("a", 0): ONE, Case("b", 0): ONE, Case("a", 1): OTHER})
    assert found == {Case("a", 0): mean_of([ONE, OTHER]), Case("b", 0): ONE}


def test_each_case_has_its_result():
    cases = [Case("a", 1), Case("b", 2)]
    assert run_cases(lambda case: case.seed, cases, 1) == {cases[0]: 1, cases[1]: 2}


def test_a_percentile_is_one_of_the_values():
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (0, 50, 95, 100)] == [1.0, 3.0, 4.0, 4.0]
