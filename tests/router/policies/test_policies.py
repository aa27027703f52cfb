"""What holds for every policy, whatever the cluster looks like."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState
from router.policies.capabilities import ReordersQueue
from router.policies.policy import Dispatch, Reject, Wait
from router.policies.registry import make_policy, policies
from router.view.engine_work import Reservation
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_engine, make_request, make_view
from tests.seeds import seeds

COUNT = len(seeds(10))  # of each policy

seconds = st.floats(0, 10)
engine_numbers = st.fixed_dictionaries(
    {
        "state": st.sampled_from([ProcessState.READY, ProcessState.READY, *ProcessState]),
        "services": st.sampled_from([(SERVICE,), (SERVICE, "other"), ("other",)]),
        "num_free_blocks": st.integers(0, 100),
        "num_waiting": st.integers(0, 3),
        "num_tokens": st.integers(0, 1000),
        "prefill_remaining_s": seconds,
        "prefill_waiting_s": seconds,
        "min_slack_s": st.none() | seconds,
        "age_s": st.floats(0, 1),
    }
)
clusters = st.dictionaries(st.sampled_from([P0, P1, D0, D1, M0, M1]), engine_numbers).map(
    lambda engines: make_view(*(make_engine(id_, **numbers) for id_, numbers in engines.items()))
)
requests = st.builds(make_request, st.integers(1, 2000), deadline=seconds)


def ranked(policy, waiting, view, now):
    order = policy.offers(ReordersQueue)
    return list(waiting if order is None else order.rank(waiting, view, now))


@pytest.mark.parametrize("name", policies())
@settings(max_examples=COUNT)
@given(view=clusters, request_=requests, now=seconds)
def test_only_engines_that_live_serve_and_fit_are_used(name, view, request_, now):
    decision = make_policy(PolicySpec(name), Random(0)).decide(request_, view, now)
    serving = {engine.id: engine for engine in view.serving(SERVICE)}
    if isinstance(decision, Dispatch):
        for engine in (decision.prefill_engine, decision.decode_engine):
            assert serving[engine].services[SERVICE].can_ever_hold(request_.num_tokens + 1)
        assert decision.predicted_ttft_s >= decision.prefill_s > 0
    if isinstance(decision, Reject):
        assert serving
        assert request_.num_tokens + 1 > 1600


@pytest.mark.parametrize("name", ["tropical", "disaggregated"])
@settings(max_examples=COUNT)
@given(view=clusters, request_=requests, now=seconds)
def test_decode_engines_have_room_now(name, view, request_, now):
    decision = make_policy(PolicySpec(name), Random(0)).decide(request_, view, now)
    if isinstance(decision, Dispatch):
        assert view.engines[decision.decode_engine].services[SERVICE].can_hold(request_.num_tokens + 1)


@pytest.mark.parametrize("name", ["tropical", "elastic", "foresight"])
@pytest.mark.parametrize(("max_running", "kind"), [(2, Wait), (3, Dispatch), (0, Dispatch)])
def test_who_would_wait_for_a_place_waits_in_the_gateway(name, max_running, kind):
    """Those of the engine's other services have places of their own."""
    there = [Reservation(id_, M0, service, 16, None) for id_, service in (("a", SERVICE), ("b", SERVICE), ("c", "o"))]
    engine = make_engine(M0, services=(SERVICE, "o"), max_running=max_running, reservations=there)
    decision = make_policy(PolicySpec(name), Random(0)).decide(make_request(), make_view(engine), 0.0)
    assert isinstance(decision, kind)


@pytest.mark.parametrize("name", policies())
@settings(max_examples=COUNT)
@given(view=clusters, requests_=st.lists(requests, max_size=5))
def test_decisions_are_deterministic(name, view, requests_):
    one, other = (make_policy(PolicySpec(name), Random(5)) for _ in range(2))
    assert [one.decide(r, view, 0.0) for r in requests_] == [other.decide(r, view, 0.0) for r in requests_]


@pytest.mark.parametrize("name", policies())
@settings(max_examples=COUNT)
@given(engines=st.sets(st.sampled_from([P0, P1, D0, D1, M0, M1]), min_size=1), request_=requests)
def test_an_idle_mesh_takes_everything_that_fits(name, engines, request_):
    view = make_view(*(make_engine(id_, decode_step_s=0.0) for id_ in engines))  # nothing decodes
    policy = make_policy(PolicySpec(name), Random(0))
    assert ranked(policy, [request_], view, 0.0) == [request_]
    decision = policy.decide(request_, view, 0.0)
    assert isinstance(decision, Dispatch if request_.num_tokens < 1600 else Reject)


@pytest.mark.parametrize("name", policies())
@settings(max_examples=COUNT)
@given(view=clusters, deadlines=st.lists(seconds, max_size=8), now=seconds)
def test_a_policy_that_reorders_the_queue_leaves_nothing_out_and_adds_nothing(name, view, deadlines, now):
    waiting = [make_request(100 * n + 1, deadline=at, id_=f"r{n}") for n, at in enumerate(sorted(deadlines))]
    in_order = ranked(make_policy(PolicySpec(name), Random(0)), waiting, view, now)
    assert len({request.id for request in in_order}) == len(in_order)
    assert all(request in waiting for request in in_order)


@pytest.mark.parametrize("name", policies())
def test_nothing_goes_to_engines_that_start_drain_or_have_another_service(name):
    policy = make_policy(PolicySpec(name), Random(0))
    starting, draining = make_engine(P0, state=ProcessState.STARTING), make_engine(M0, state=ProcessState.DRAINING)
    other = make_engine(D0, services=("other",))
    assert isinstance(policy.decide(make_request(), make_view(starting, draining, other), 0.0), Wait)
