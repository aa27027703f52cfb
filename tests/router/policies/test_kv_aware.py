import pytest

from mesh.wire.control import PrefillOrder
from router.policies.kv_aware import KvAware, KvAwareParameters
from tests.router.cluster import D0, D1, M0, M1, P0, P1, make_engine, make_request, make_view


def decide(*engines, overlap_weight=1.0, **request):
    return KvAware(KvAwareParameters(overlap_weight)).decide(make_request(**request), make_view(*engines), 0.0)


def test_what_is_cached_need_not_be_computed():
    decision = decide(make_engine(M0), make_engine(M1), cached={M1: 40})
    assert (decision.prefill_engine, decision.decode_engine, decision.order) == (M1, M1, PrefillOrder.ARRIVAL)
    assert decision.numbers["cost_tokens"] == pytest.approx(60)


def test_held_context_weighs_as_much_as_a_prompt():
    """100 tokens to compute and 50 held, or 60 to compute and 100 held."""
    light, warm = make_engine(M0, num_tokens=50), make_engine(M1, num_tokens=100)
    assert decide(light, warm, cached={M1: 40}).prefill_engine == M0
    assert decide(light, warm, cached={M1: 40}, overlap_weight=2).prefill_engine == M1


def test_prompts_that_wait_count_as_tokens_at_the_pace_of_their_engine():
    """It computes 1000 a second: 0.2 s are 200 tokens."""
    waiting = make_engine(M0, prefill_waiting_s=0.2)
    assert decide(waiting, make_engine(M1, num_tokens=201)).prefill_engine == M0
    assert decide(waiting, make_engine(M1, num_tokens=199)).prefill_engine == M1


def test_each_phase_is_judged_by_its_own_part():
    """A prefill engine by what it has to compute, a decode engine by what it holds, cached or not."""
    prefill_engines = make_engine(P0, num_tokens=900), make_engine(P1, prefill_waiting_s=0.1)
    decode_engines = make_engine(D0, num_tokens=50), make_engine(D1, num_tokens=40)
    decision = decide(*prefill_engines, *decode_engines, cached={D0: 100})
    assert (decision.prefill_engine, decision.decode_engine) == (P0, D1)
