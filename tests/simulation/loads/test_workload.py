import pytest

from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.status import PrefillCost
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule, blocks_of, make_spec, prompt_of

COST = PrefillCost(0.0, 0.01)
SERVICE = ServiceSpec("large", "m", Slo(2.0, 0.1), priority=5)
PLAIN = TraceRequest(0.0, 100, 7)
OWN = TraceRequest(0.0, 100, 7, slo_ttft_s=3.0, slo_tpot_s=0.2, priority=-1)


def promised(request, rule):
    spec = make_spec(request, 0, "gateway", SERVICE, COST, rule)
    return spec.slo_ttft_s, spec.slo_tpot_s, spec.priority


def test_a_promise_is_the_services_unless_the_trace_has_one():
    assert promised(PLAIN, SloRule()) == (2.0, 0.1, 5)
    assert promised(OWN, SloRule()) == (3.0, 0.2, -1)


def test_the_topologys_promise_can_be_asked_for():
    assert promised(OWN, SloRule(keeps_traced=False)) == (2.0, 0.1, -1)


@pytest.mark.parametrize("request_", [PLAIN, OWN])
def test_a_factor_of_the_unloaded_prefill_replaces_both(request_):
    assert promised(request_, SloRule(ttft_factor=4.0))[:2] == pytest.approx((4.0, 0.1))


def test_what_all_are_promised():
    assert SloRule().common([SERVICE], [PLAIN, PLAIN]) == (2.0, 0.1)
    assert SloRule().common([SERVICE], [PLAIN, OWN]) == (None, None)
    assert SloRule(keeps_traced=False).common([SERVICE], [PLAIN, OWN]) == (2.0, 0.1)
    assert SloRule(ttft_factor=4.0).common([SERVICE], [PLAIN, OWN]) == (None, 0.1)


def test_whose_promises_count():
    assert SloRule().counts_traced([PLAIN, OWN])
    assert not SloRule().counts_traced([PLAIN])
    assert not SloRule(keeps_traced=False).counts_traced([OWN])
    assert not SloRule(ttft_factor=4.0).counts_traced([OWN])


@pytest.mark.parametrize("request_", [PLAIN, TraceRequest(0.0, 1100, 1, (3, 1, 4)), TraceRequest(0.0, 1100, 1, (3,))])
def test_a_prompts_blocks_can_be_read_from_it(request_):
    assert blocks_of(prompt_of(request_, 5)) == request_.blocks
