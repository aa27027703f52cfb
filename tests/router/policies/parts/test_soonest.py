"""Engines in the order in which they would be done with a prefill at full speed."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mesh.wire.status import PendingPrefill, PrefillCost
from router.policies.parts.candidates import find_candidates
from router.policies.parts.outlook import own_work_s, work_ahead_s
from router.policies.parts.soonest import could_have_made_it, own_works_s, soonest_first
from router.view.cluster_view import Candidates
from router.view.engine_view import EngineView, PrefillPace, RequestView, engine_view
from tests.router.cluster import SERVICE, make_engine, make_request, make_status, make_view


def engine(number: int, ahead_s: Sequence[float] = (), **numbers: object) -> EngineView:
    """An engine with such prefills before the request: they are due at once, and can be in time."""
    prefills = [PendingPrefill(sum(ahead_s[: index + 1]) + 0.1, one) for index, one in enumerate(ahead_s)]
    waiting_s = sum(ahead_s)
    return make_engine(f"prefill-{number}", prefills=prefills, prefill_waiting_s=waiting_s, **numbers)


def found_among(request: RequestView, engines: Sequence[EngineView]) -> Candidates:
    found = find_candidates(request, make_view(*engines, make_engine("decode-0")))
    assert isinstance(found, Candidates)
    return found


def order(engines: Sequence[EngineView], own_s: Sequence[float]) -> list[tuple[float, int]]:
    return list(soonest_first(make_request(deadline=9.0), engines, own_s, 0.0))


def test_an_idle_engine_comes_before_one_with_work():
    assert order([engine(0, [0.3]), engine(1)], [0.1, 0.1]) == [(0.1, 1), (0.4, 0)]


def test_a_fast_engine_with_work_may_come_before_a_slow_idle_one():
    assert order([engine(0), engine(1, [0.2])], [0.5, 0.1]) == [(0.30000000000000004, 1), (0.5, 0)]


def test_a_line_counts_whatever_is_promised():
    assert order([engine(0, line_s=0.7), engine(1, line_s=0.2)], [0.1, 0.1])[0][1] == 1


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]), st.sampled_from([0.1, 0.3, 0.4])), min_size=1, max_size=6
    )
)
def test_engines_come_in_the_order_of_all_work(numbers: list[tuple[float, float]]):
    engines = [engine(number, [ahead] if ahead else []) for number, (ahead, _) in enumerate(numbers)]
    own_s = [own for _, own in numbers]
    place = 0, 9.0
    expected = sorted((own_s[number] + work_ahead_s(one, place, 0.0), number) for number, one in enumerate(engines))
    assert order(engines, own_s) == expected


def test_equal_engines_take_as_long_as_the_first():
    request = make_request(500)
    assert own_works_s(request, found_among(request, [engine(0), engine(1)]), 0.5) == [0.5, 0.5]


def test_a_slower_engine_takes_longer_by_its_pace():
    request = make_request(513)
    slow = make_status("prefill-1")
    [service] = slow.services
    slow = replace(slow, services=[replace(service, prefill_cost=PrefillCost(0.0, 0.002))])
    engines = [engine(0), engine_view("prefill-1", slow, 0.0, ())]
    assert engines[1].services[SERVICE].pace == PrefillPace(0.002, 2.048)
    first, second = own_works_s(request, found_among(request, engines), 0.513)
    assert (first, round(second, 6)) == (0.513, 1.026)


def test_what_is_cached_on_an_engine_is_not_computed_there():
    request = make_request(500, cached={"prefill-1": 400})
    engines = [engine(0), engine(1)]
    assert own_works_s(request, found_among(request, engines), 0.5) == [0.5, own_work_s(engines[1], request)]
    assert own_work_s(engines[1], request) < 0.2


def test_a_promise_counts_if_one_idle_engine_could_keep_it():
    request = make_request(1500, deadline=1.4)
    assert not could_have_made_it(request, found_among(request, [engine(0)]), 1.5)
    assert could_have_made_it(request, found_among(request, [engine(0)]), 1.4)
    fast = make_status("prefill-1")
    [service] = fast.services
    fast = replace(fast, services=[replace(service, prefill_cost=PrefillCost(0.0, 0.0005))])
    both = [engine(0), engine_view("prefill-1", fast, 0.0, ())]
    assert could_have_made_it(request, found_among(request, both), 1.5)
