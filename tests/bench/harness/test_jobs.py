import pytest

from bench.harness.jobs import run_jobs


def test_answers_come_in_the_order_of_the_jobs():
    assert run_jobs(abs, [-3, -1, -2], 2) == [3, 1, 2]


def test_one_process_works_without_a_pool():
    seen: list[int] = []
    assert run_jobs(seen.append, [1, 2], 1) == [None, None]
    assert seen == [1, 2]


def test_no_jobs_give_no_answers():
    assert run_jobs(abs, [], 4) == []


def test_the_error_of_a_job_is_raised():
    with pytest.raises(ValueError, match="invalid literal"):
        run_jobs(int, ["1", "x"], 2)
