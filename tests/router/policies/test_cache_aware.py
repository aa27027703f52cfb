from random import Random

from mesh.wire.control import PrefillOrder
from router.policies.cache_aware import CacheAware, CacheAwareParameters
from tests.router.cluster import D0, D1, M0, M1, P0, P1, make_engine, make_request, make_view


def policy(**parameters):
    return CacheAware(CacheAwareParameters(**parameters), Random(0))


def decide(one, *engines, **request):
    return one.decide(make_request(**request), make_view(*engines), 0.0)


def test_the_engine_with_most_of_the_prompt_takes_it():
    decision = decide(policy(), make_engine(M0), make_engine(M1), cached={M0: 32, M1: 64})
    assert (decision.prefill_engine, decision.rule, decision.order) == (M1, "most cached", PrefillOrder.ARRIVAL)


def test_little_that_is_cached_does_not_decide():
    one = policy(threshold=0.5)
    assert decide(one, make_engine(M0), make_engine(M1), cached={M1: 50}).prefill_engine == M0
    assert decide(one, make_engine(M0), make_engine(M1), cached={M1: 51}).prefill_engine == M1


def test_prompts_that_nobody_has_go_to_who_was_sent_the_least():
    one, engines = policy(), (make_engine(M0), make_engine(M1))
    sent = [decide(one, *engines, num_tokens=tokens).prefill_engine for tokens in (100, 30, 30, 30, 30)]
    assert sent == [M0, M1, M1, M1, M1]
    assert decide(one, *engines).prefill_engine == M0


def test_services_have_caches_of_their_own():
    one, engines = policy(), [make_engine(id_, services=("chat", "code")) for id_ in (M0, M1)]
    assert decide(one, *engines).prefill_engine == M0
    assert decide(one, *engines, service="code").prefill_engine == M0


def test_uneven_load_goes_before_the_cache():
    busy, idle = make_engine(M0, num_running=5), make_engine(M1, num_running=2)
    assert decide(policy(most_apart=2), busy, idle, cached={M0: 100}).prefill_engine == M1
    assert decide(policy(most_apart=3), busy, idle, cached={M0: 100}).prefill_engine == M0
    assert decide(policy(most_apart=2, most_times=2.5), busy, idle, cached={M0: 100}).prefill_engine == M0


def test_of_two_decode_engines_the_less_loaded_one_takes_over():
    engines = make_engine(P0), make_engine(P1), make_engine(D0, num_tokens=9), make_engine(D1, num_tokens=8)
    decision = decide(policy(), *engines, cached={P1: 90, D0: 100})
    assert (decision.prefill_engine, decision.decode_engine) == (P1, D1)
