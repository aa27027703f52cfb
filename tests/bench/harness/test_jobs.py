from bench.harness.jobs import grouped, run_jobs
from mesh.jobs.runner import JobPlace


def test_answers_come_in_the_order_of_the_jobs():
    assert run_jobs(abs, [-3, -1, -2], JobPlace(2)) == [3, 1, 2]


def test_one_process_works_without_a_pool():
    seen: list[int] = []
    assert run_jobs(seen.append, [1, 2], JobPlace(1)) == [None, None]
    assert seen == [1, 2]


def test_no_jobs_give_no_answers():
    assert run_jobs(abs, [], JobPlace(4)) == []


def test_answers_are_grouped_by_what_their_jobs_share():
    assert grouped({"a0": 1, "b0": 2, "a1": 3}, lambda name: name[0]) == {"a": [1, 3], "b": [2]}
