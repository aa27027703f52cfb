from bench.harness.jobs import run_jobs
from mesh.jobs.runner import JobPlace


def test_answers_come_in_the_order_of_the_jobs():
    assert run_jobs(abs, [-3, -1, -2], JobPlace(2)) == [3, 1, 2]


def test_one_process_works_without_a_pool():
    seen: list[int] = []
    assert run_jobs(seen.append, [1, 2], JobPlace(1)) == [None, None]
    assert seen == [1, 2]


def test_no_jobs_give_no_answers():
    assert run_jobs(abs, [], JobPlace(4)) == []
