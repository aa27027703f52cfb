"""Who may serve a request, who of them is least loaded, and the dispatch that follows."""

import pytest

from mesh.wire.control import ProcessState
from mesh.wire.status import FailedLoad
from router.policies.parts.candidates import find_candidates, least_loaded, load, route
from router.policies.policy import Reject, Wait
from router.view.cluster_view import Candidates
from tests.router.cluster import D0, D1, M0, P0, P1, SERVICE, make_engine, make_request, make_view


def test_engines_that_serve_are_found_by_what_they_do():
    found = find_candidates(make_request(), make_view(*map(make_engine, (D0, M0, P0))))
    assert isinstance(found, Candidates)
    assert [[one.id for one in group] for group in (found.prefill, found.multiplex, found.decode)] == [
        [P0],
        [M0],
        [D0, M0],
    ]


@pytest.mark.parametrize("numbers", [{"services": ("other",)}, {"state": ProcessState.DRAINING}], ids=str)
def test_a_request_waits_where_nobody_serves_it(numbers: dict[str, object]):
    assert find_candidates(make_request(), make_view(make_engine(M0, **numbers))) == Wait(
        f"no engine is ready to serve {SERVICE}"
    )
    assert isinstance(find_candidates(make_request(), make_view()), Wait)


def test_a_request_that_waits_hears_what_an_engine_says_that_should_serve_it():
    failed = [FailedLoad("other", "no file", 1), FailedLoad(SERVICE, "no model", 2)]
    view = make_view(make_engine(M0, services=("other",), failed_loads=failed))
    assert find_candidates(make_request(), view) == Wait(f"no engine is ready to serve {SERVICE}; {M0}: no model")


def test_a_prompt_must_fit_with_the_token_that_follows_it():
    view = make_view(make_engine(M0, num_blocks=10), make_engine(D0, num_blocks=4))
    assert isinstance(find_candidates(make_request(159), view), Candidates)
    assert find_candidates(make_request(160), view) == Reject(
        "the request has 160 tokens; the largest KV pool holds 160"
    )


def test_the_least_loaded_is_the_first_of_equals_and_one_that_suits():
    engines = [make_engine(P1, num_tokens=5), make_engine(P0, num_tokens=5), make_engine(D0, num_tokens=1)]
    assert least_loaded(engines, lambda engine: True) is engines[2]
    assert least_loaded(engines, lambda engine: engine.id != D0) is engines[1]
    assert least_loaded(engines, lambda engine: False) is None
    assert min(engines, key=load) is engines[2]


def test_only_who_is_less_loaded_than_all_before_is_looked_at():
    engines = [make_engine(D0, num_tokens=1), make_engine(D1, num_tokens=9)]
    asked = []
    least_loaded(engines, lambda engine: not asked.append(engine.id))
    assert asked == [D0]


def test_a_route_predicts_backlog_and_prefill():
    prefill = make_engine(P0, prefill_remaining_s=0.5)
    dispatch = route(make_request(100, cached={P0: 40}), "a rule", prefill, make_engine(D0), now=0.2)
    assert (dispatch.prefill_engine, dispatch.decode_engine) == (P0, D0)
    assert dispatch.numbers["cached_tokens"] == 40
    assert dispatch.prefill_s < 0.1
    assert dispatch.predicted_ttft_s == pytest.approx(0.3 + dispatch.prefill_s)
    assert route(make_request(), "", prefill, prefill, 0.0, predicted_ttft_s=7.0).predicted_ttft_s == 7.0
