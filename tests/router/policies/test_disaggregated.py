"""Strict disaggregation: prefills on prefill engines only, first come, first served, whatever is promised."""

from mesh.wire.control import PrefillOrder
from router.policies.disaggregated import Disaggregated, DisaggregatedParameters
from router.policies.policy import Decision, Dispatch, GiveUp, Wait
from router.view.engine_view import EngineView
from tests.router.cluster import D0, D1, M0, P0, P1, make_engine, make_request, make_view


def decide(*engines: EngineView, num_tokens: int = 100, deadline: float = 1.0, **parameters: object) -> Decision:
    policy = Disaggregated(DisaggregatedParameters(**parameters))  # type: ignore[arg-type]
    return policy.decide(make_request(num_tokens, deadline=deadline), make_view(*engines), 0.0)


def route(*engines: EngineView, **fields: object) -> tuple[str, str]:
    decision = decide(*engines, **fields)  # type: ignore[arg-type]
    assert isinstance(decision, Dispatch)
    assert decision.order is PrefillOrder.ARRIVAL
    return decision.prefill_engine, decision.decode_engine


def test_it_never_multiplexes_however_long_the_queue():
    engines = make_engine(P0, prefill_waiting_s=9.0, num_waiting=50), make_engine(M0)
    assert route(*engines, deadline=0.1) == (P0, M0)


def test_a_prefill_goes_where_the_backlog_ends_first():
    engines = make_engine(P0, prefill_remaining_s=9.0), make_engine(P1, prefill_remaining_s=8.0, num_waiting=3)
    assert route(*engines, make_engine(M0)) == (P1, M0)


def test_a_decode_goes_to_the_fewest_tokens_that_have_room():
    full, busy, idle = make_engine(M0, num_free_blocks=6), make_engine(D0, num_tokens=9), make_engine(D1, num_tokens=8)
    assert route(make_engine(P0), full, busy, idle) == (P0, D1)
    assert route(make_engine(P0), full, busy) == (P0, D0), "the prompt and a token take seven blocks"


def test_it_waits_for_memory():
    assert isinstance(decide(make_engine(P0), make_engine(M0, num_free_blocks=6)), Wait)


def test_what_migrates_after_its_prefill_names_no_other_engine():
    engines = make_engine(P0), make_engine(D0, num_free_blocks=0)
    assert route(*engines, after_prefill="migrate") == (P0, P0)


def test_early_rejection_refuses_what_no_engine_would_serve_in_time():
    late, slow = make_engine(P0, prefill_waiting_s=0.95, num_waiting=1), make_engine(D0)
    assert isinstance(decide(late, slow, reject_late=True), GiveUp)
    assert route(late, slow) == (P0, D0), "without it, a late answer is an answer"
    assert route(late, make_engine(P1, prefill_waiting_s=0.5, num_waiting=1), slow, reject_late=True) == (P1, D0)


def test_early_rejection_looks_for_an_engine_that_is_done_in_time_beyond_the_first_that_is_free():
    request = make_request(700, cached={P1: 600})
    view = make_view(
        make_engine(P0, prefill_waiting_s=0.4, num_waiting=1),
        make_engine(P1, prefill_waiting_s=0.5, num_waiting=1),
        make_engine(D0),
    )
    policy = Disaggregated(DisaggregatedParameters(reject_late=True))
    decision = policy.decide(request, view, 0.0)
    assert isinstance(decision, Dispatch)
    assert decision.prefill_engine == P1
