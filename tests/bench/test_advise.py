from dataclasses import replace

from bench.advise import GOAL, SearchCase, compare, completions, make_case
from mesh.jobs.runner import JobPlace


def test_a_case_has_as_many_candidates_as_are_asked_for_from_cheap_to_dear():
    case = make_case(200, 20, seed=0)
    prices = [candidate.price for candidate in case.candidates]
    assert len(prices) == 20
    assert prices == sorted(prices)
    assert list(completions(200, 0)) == list(case.requests)


def test_search_and_grid_answer_the_same_question():
    case = make_case(60, 12, seed=1)
    few = SearchCase(case.requests, case.candidates[::4], replace(case.effort, least_requests=60))
    by_search, by_grid = compare(few, 2, JobPlace(1))
    assert by_grid["requests"] == len(few.candidates) * len(few.requests)
    assert by_search["price"] == by_grid["price"]
    assert by_search["seen"] >= GOAL
    assert by_search["cpu_s"] > 0
