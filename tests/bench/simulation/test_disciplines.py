"""Simulated engines with disciplines: what coasts decides as what computes step by step."""

import pytest

from mesh.messages import Role
from mesh.topology.schema import Scheduling
from tests.bench.simulation.small import Profile, assert_all_ended_once, run, simulation, topology
from tests.bench.simulation.test_cluster import poisson

TWO = {"a": Role.MULTIPLEX, "b": Role.MULTIPLEX}


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("scheduling", [Scheduling.DB, Scheduling.FCFS, Scheduling.ROUND_ROBIN])
def test_coasting_changes_nothing(scheduling: Scheduling, scarce: bool) -> None:
    what = topology(TWO, "least_loaded", scheduling=scheduling)
    profile = Profile(kv_memory_bytes=500 * 16 * 327_680) if scarce else Profile()
    trace = poisson(6.0, 12.0)
    exact, coasting = (
        {record.id: record for record in run(what, trace, profile=profile, coasts=coasts)} for coasts in (False, True)
    )
    for id_, one in exact.items():
        assert coasting[id_].decode_engine == one.decode_engine
        assert coasting[id_].e2e_s == pytest.approx(one.e2e_s, rel=1e-9)


@pytest.mark.parametrize("scheduling", Scheduling)
def test_handed_over_or_not_every_request_ends_once(scheduling: Scheduling) -> None:
    what = topology({"p": Role.PREFILL, "m": Role.MULTIPLEX, "d": Role.DECODE}, scheduling=scheduling, starvation_s=2.0)
    sim, records, trace = simulation(what), [], poisson(8.0, 10.0)
    sim.run("large", trace, records.append)
    assert_all_ended_once(sim, records, trace)
