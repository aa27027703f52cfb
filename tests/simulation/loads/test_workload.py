from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.status import PrefillCost
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule, blocks_of, make_spec

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


def test_blocks_that_a_prompt_is_too_short_for_are_none_of_its_own():
    assert blocks_of(TraceRequest(0.0, 1100, 1, (3, 1, 4, 9))) == (3, 1, 4)
    assert blocks_of(TraceRequest(0.0, 1100, 1, (3,))) == (3,)
