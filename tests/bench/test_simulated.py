"""What simulated benches share."""

from bench.simulated import percentile, run_cases
from mesh.jobs.runner import JobPlace


def test_each_case_has_its_result():
    assert run_cases(str.upper, ["a", "b"], JobPlace()) == {"a": "A", "b": "B"}


def test_a_percentile_is_one_of_the_values():
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (0, 50, 95, 100)] == [1.0, 3.0, 4.0, 4.0]
