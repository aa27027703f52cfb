"""SCLS on a live mesh: what contenders are, what they are asked, and what is made of their figures."""

import pytest

from bench.papers.scls.live import (
    BATCH,
    CONTENDERS,
    PAIRS,
    Case,
    Result,
    gains,
    lengths,
    prefilled,
    rows,
    topology_text,
)
from bench.papers.scls.setting import LONGEST
from mesh.topology.parse import load
from mesh.topology.schema import Scheduling
from simulation.loads.trace_request import TraceRequest


@pytest.mark.parametrize("contender", CONTENDERS)
def test_contenders_are_two_engines_with_their_batches_and_policy(contender, tmp_path):
    path = tmp_path / "topology.toml"
    path.write_text(topology_text(contender))
    topology = load(path)
    kinds = {"transformers": Scheduling.PADDED, "torch": Scheduling.STATIC}
    scheduler, _, rest = contender.partition(", ")
    assert topology.policy.name == ("slices" if scheduler == "SCLS" else "round_robin")
    assert [one.threads for one in topology.engines] == [1, 1]
    assert {one.scheduling for one in topology.engines} == {kinds.get(rest, Scheduling.SLO)}
    if scheduler == "SLS":
        assert {one.max_running for one in topology.engines} == {BATCH}


def test_lengths_are_an_eighth_of_the_simulation_s():
    assert max(one.num_output for one in lengths()) == max(one.num_input for one in lengths()) == LONGEST // 8
    assert min(one.num_output for one in lengths()) >= 1


def test_every_contender_of_a_round_gets_the_same_requests():
    first, second = (Case(name, 20, 8.0, 1).trace() for name in ("ILS", "SLS, torch"))
    assert first == second != Case("ILS", 20, 8.0, 2).trace()


def test_each_slice_prefills_all_that_a_request_has():
    trace = [TraceRequest(0.0, 10, 16), TraceRequest(0.0, 10, 40)]
    assert prefilled(trace, 16) == (10 + 10 + 26 + 42) / 2
    assert prefilled(trace, 1000) == 10


def test_gains_are_of_the_same_rounds():
    def result(throughput):
        return Result(throughput, 1 / throughput, 2 / throughput, 0.0)

    cases = {"SLS, torch": (1.0, 2.0), "SCLS, torch": (2.0, 4.0), "ILS": (4.0, 8.0)}
    results = {Case(name, 1, 1.0, number): result(cases[name][number]) for number in (0, 1) for name in reversed(cases)}
    assert [*gains(results)] == [
        ("SCLS, torch", "SLS, torch", *["2.00 (2.00 to 2.00)", *["0.50 (0.50 to 0.50)"] * 2]),
        ("SCLS, torch", "ILS", *["0.50 (0.50 to 0.50)", *["2.00 (2.00 to 2.00)"] * 2]),
    ]
    assert [row[:2] for row in rows(results)] == [("SLS, torch", "1.50"), ("SCLS, torch", "3.00"), ("ILS", "6.00")]
    assert {name for pair in PAIRS for name in pair} == set(CONTENDERS)
