"""The waiting queue: earliest deadline first within a priority, whatever comes and goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.requests.in_flight_request import InFlightRequest
from router.requests.waiting import WaitingQueue
from tests.router.cluster import make_in_flight, make_spec

arrivals = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 10), st.floats(0.1, 5), st.booleans()), max_size=30)


def make_request_in_flight(number: int, priority: int, now: float, slo_ttft_s: float) -> InFlightRequest:
    spec = make_spec(f"r{number}", 10, slo_ttft_s=slo_ttft_s, priority=priority)
    return make_in_flight(spec, number, now)


@given(arrivals)
def test_the_most_urgent_comes_first(arrivals):
    queue, waiting = WaitingQueue(), []
    for number, (priority, now, slo_ttft_s, leaves) in enumerate(arrivals):
        request = make_request_in_flight(number, priority, now, slo_ttft_s)
        queue.add(request)
        waiting.append(request)
        if leaves:
            queue.remove(waiting.pop(len(waiting) // 2))
        assert list(queue) == sorted(waiting, key=lambda f: (-f.spec.priority, f.deadline.at, f.timeline.number))


def test_only_what_waits_can_leave():
    with pytest.raises(ValueError, match="r1 does not wait"):
        WaitingQueue().remove(make_request_in_flight(1, 0, 0.0, 1.0))
