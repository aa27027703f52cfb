from random import Random

import pytest

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.cache_aware import CacheAware, CacheAwareParameters
from router.policies.chunked import Chunked
from router.policies.colocated import Colocated
from router.policies.disaggregated import Disaggregated, DisaggregatedParameters
from router.policies.disaggregated_sjf import DisaggregatedSJF
from router.policies.join_shortest_queue import JoinShortestQueue
from router.policies.kv_aware import KvAware, KvAwareParameters
from router.policies.least_loaded import LeastLoaded
from router.policies.policy import BaselineParameters, QueueParameters
from router.policies.power_of_two import PowerOfTwo
from router.policies.predicted_latency import PredictedLatency, PredictedLatencyParameters
from router.policies.round_robin import RoundRobin
from tests.router.cluster import D0, D1, M0, P0, P1, make_engine, make_request, make_view

BASELINES = [
    RoundRobin(),
    JoinShortestQueue(QueueParameters()),
    LeastLoaded(),
    PowerOfTwo(QueueParameters(), Random(0)),
    Colocated(BaselineParameters()),
    Chunked(BaselineParameters()),
    Disaggregated(DisaggregatedParameters()),
    DisaggregatedSJF(DisaggregatedParameters()),
    CacheAware(CacheAwareParameters(), Random(0)),
    KvAware(KvAwareParameters()),
    PredictedLatency(PredictedLatencyParameters(), Random(0)),
]


def route(policy, *engines, **request):
    decision = policy.decide(make_request(**request), make_view(*engines), 0.0)
    return decision.prefill_engine, decision.decode_engine


def test_round_robin_takes_turns_in_each_phase():
    policy, engines = RoundRobin(), [make_engine(id_) for id_ in (P0, P1, D0, D1)]
    assert [route(policy, *engines) for _ in range(4)] == [(P0, D0), (P1, D1), (P0, D0), (P1, D1)]


def test_round_robin_keeps_what_a_multiplexing_engine_prefilled():
    policy, engines = RoundRobin(), [make_engine(P0), make_engine(M0)]
    assert {route(policy, *engines) for _ in range(4)} == {(P0, M0), (M0, M0)}


def test_round_robin_survives_the_loss_of_the_engine_whose_turn_it_was():
    policy = RoundRobin()
    route(policy, make_engine(P1), make_engine(D0))
    assert route(policy, make_engine(P0), make_engine(D1)) == (P0, D1)


def test_least_loaded_looks_at_tokens_in_flight():
    engines = (
        make_engine(P0, num_tokens=5),
        make_engine(P1, num_tokens=4),
        make_engine(D0, num_tokens=1),
        make_engine(D1),
    )
    assert route(LeastLoaded(), *engines) == (P1, D1)


def test_power_of_two_is_deterministic_by_seed_and_avoids_the_most_loaded():
    engines = [make_engine(f"prefill-{n}", num_tokens=n) for n in range(4)] + [make_engine(D0)]
    policies = (PowerOfTwo(QueueParameters(), Random(3)) for _ in range(2))
    first, again = ([route(policy, *engines)[0] for _ in range(50)] for policy in policies)
    assert first == again
    assert set(first) == {"prefill-0", "prefill-1", "prefill-2"}


def test_colocated_ignores_roles_and_never_hands_over():
    engines = make_engine(P0, num_tokens=2), make_engine(D0, num_tokens=1), make_engine(M0, num_tokens=3)
    assert route(Colocated(BaselineParameters()), *engines) == (D0, D0)


def test_join_shortest_queue_counts_requests_that_wait_and_run():
    prefill_engines = make_engine(P0, num_waiting=2), make_engine(P1, num_waiting=1, num_tokens=900)
    decode_engines = make_engine(D0, num_running=2), make_engine(D1, num_running=3)
    assert route(JoinShortestQueue(QueueParameters()), *prefill_engines, *decode_engines) == (P1, D0)


@pytest.mark.parametrize(
    ("policy", "mode", "order"),
    [
        (Colocated(BaselineParameters()), PrefillMode.FIRST, PrefillOrder.ARRIVAL),
        (Chunked(BaselineParameters()), PrefillMode.CHUNKED, PrefillOrder.ARRIVAL),
        (JoinShortestQueue(QueueParameters()), PrefillMode.CHUNKED, PrefillOrder.URGENCY),
        (JoinShortestQueue(QueueParameters("first")), PrefillMode.FIRST, PrefillOrder.ARRIVAL),
        (PowerOfTwo(QueueParameters("first"), Random(0)), PrefillMode.FIRST, PrefillOrder.ARRIVAL),
        (Disaggregated(DisaggregatedParameters()), PrefillMode.CHUNKED, PrefillOrder.ARRIVAL),
        (DisaggregatedSJF(DisaggregatedParameters()), PrefillMode.CHUNKED, PrefillOrder.LENGTH),
    ],
)
def test_engines_compute_prompts_as_each_system_does(policy, mode, order):
    decision = policy.decide(make_request(), make_view(make_engine(P0), make_engine(M0)), 0.0)
    assert (decision.prefill, decision.order) == (mode, order)


@pytest.mark.parametrize("policy", BASELINES[-3:], ids=lambda policy: policy.name)
def test_routers_of_others_prefill_on_prefill_engines_where_there_are_any(policy):
    engines = make_engine(P0, prefill_waiting_s=3.0, num_waiting=2), make_engine(M0)
    assert route(policy, *engines) == (P0, M0)


@pytest.mark.parametrize("policy", BASELINES)
@pytest.mark.parametrize("engine", [P0, D0, M0])
def test_every_policy_serves_with_one_engine_left(policy, engine):
    assert route(policy, make_engine(engine)) == (engine, engine)
