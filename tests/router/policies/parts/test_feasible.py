from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.policies.parts.feasible import left_over, split_feasible
from tests.router.cluster import P0, SERVICE, make_engine, make_request, make_view

jobs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), max_size=7)


def split(jobs_, *, priorities=None, speed=1.0, starts_at=0.0):
    requests = [
        make_request(length, deadline=deadline, id_=str(index), priority=priorities[index] if priorities else 0)
        for index, (length, deadline) in enumerate(jobs_)
    ]
    kept, rest = split_feasible(requests, [length for length, _ in jobs_], speed, starts_at)
    assert sorted(request.id for request in kept + rest) == sorted(request.id for request in requests)
    return [int(request.id) for request in kept], [int(request.id) for request in rest]


def are_feasible(jobs_):
    """One after the other by deadline, each is in time."""
    ends_at = 0
    for length, deadline in sorted(jobs_, key=lambda job: job[1]):
        ends_at += length
        if ends_at > deadline:
            return False
    return True


@settings(max_examples=300)
@given(jobs_=jobs)
def test_no_other_choice_serves_more(jobs_):
    kept, _ = split(jobs_)
    assert are_feasible([jobs_[index] for index in kept])
    assert not any(are_feasible(others) for others in combinations(jobs_, len(kept) + 1))


def test_the_longest_is_left_out():
    assert split([(5, 6), (2, 7), (4, 9)]) == ([1, 2], [0])


def test_both_lists_keep_their_order():
    assert split([(1, 30), (9, 9), (1, 10), (8, 12)]) == ([0, 2, 3], [1])


def test_the_less_important_is_left_out_though_it_is_shorter():
    assert split([(5, 6), (2, 6)], priorities=[1, 0]) == ([0], [1])


def test_speed_and_start_count():
    assert split([(4, 4), (4, 4)], speed=2.0) == ([0, 1], [])
    assert split([(4, 4)], starts_at=1.0) == ([], [0])


def test_nothing_is_feasible_at_a_standstill():
    assert split([(1, 30)], speed=0.0) == ([], [0])


def test_services_that_wait_for_the_same_engines_share_their_time():
    both = make_view(make_engine(P0, services=(SERVICE, "code")))
    waiting = [make_request(600, deadline=1.0, id_="code", service="code"), make_request(500, id_="chat")]
    assert left_over(waiting, both, 0.0) == {"code"}
    busy = make_view(make_engine(P0, services=(SERVICE, "code"), prefill_remaining_s=0.6))
    assert left_over(waiting, busy, 0.0) == {"code", "chat"}
