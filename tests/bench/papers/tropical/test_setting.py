"""Tropical's figure, in small."""

from bench.papers.tropical.setting import CONTENDERS, MODELS, UNSPLIT, Search, Workload, make_topology, run_search
from mesh.wire.control import Role
from simulation.loads.sources import AS_IT_SAYS
from simulation.loads.trace_request import TraceRequest

ARXIV = Workload("arXiv", [TraceRequest(0.0, 2500, 150), TraceRequest(0.0, 1500, 100)], has_arrivals=False)
TRACE = Workload("trace", [TraceRequest(float(number), 1000, 20) for number in range(100)], has_arrivals=True)


def test_a_search_finds_a_rate_that_is_served():
    search = Search("InternLM2.5-20B TP2", ARXIV, CONTENDERS[0], num_requests=15, seeds=1)
    found = run_search(search)
    assert found.rate > 0
    assert {trial.attainment >= 0.9 for trial in found.trials} == {False, True}


def test_a_part_of_a_trace_keeps_its_own_arrivals():
    load = TRACE.load(1.0, 10, seed=3)
    assert [arrival.at_s for arrival in load.play(AS_IT_SAYS, 0, None).arrivals()] == [
        float(number) for number in range(10)
    ]


def test_contenders_that_do_not_split_have_engines_that_are_alike():
    for contender in CONTENDERS:
        roles = [engine.role for engine in make_topology(MODELS["Llama-2-70B TP4"], contender).engines]
        assert (Role.PREFILL in roles) == contender.splits
        assert contender.policy not in UNSPLIT or not contender.splits
