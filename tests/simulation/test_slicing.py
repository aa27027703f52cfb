"""Slices with continuous batching in whole simulations: nothing is lost, memory is never short, coasts are exact."""

from dataclasses import replace
from random import Random

import pytest

from mesh.topology.schema import Scheduling, Slo
from mesh.wire.control import Role
from router.history.records import Outcome
from simulation.faults.faults import Kill, Loss
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

LENGTHS = [TraceRequest(0.0, 300, 60), TraceRequest(0.0, 900, 400), TraceRequest(0.0, 100, 900)]
SCARCE = Profile(kv_memory_bytes=500 * 16 * 327_680)  # 500 blocks of 16 tokens
DURATION_S = 8.0
HASTY, PATIENT = Slo(2.0, 0.1), Slo(1e6, 1e3)


def mesh(slice_tokens, *, count=2, offloading=2**36, policy="least_loaded", slo=HASTY, scheduling=Scheduling.SLO):
    what = topology({f"engine-{index}": Role.MULTIPLEX for index in range(count)}, policy, slo=slo)
    settings = {"slice_tokens": slice_tokens, "offload_memory_bytes": offloading, "scheduling": scheduling}
    engines = (replace(engine, **settings, max_waiting=10**6) for engine in what.engines)
    return replace(what, engines=tuple(engines))


def trace_of(seed, rate=4.0):
    return list(synthesize(LENGTHS, Arrivals(rate, Process.POISSON), DURATION_S, Random(seed)))


def run(what, trace, **options):
    """The simulation and its records."""
    sim, records = simulation(what, profile=SCARCE, **options), []
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    for engine in sim.engines.values():
        assert engine.core._slicing._offloading.num_bytes == 0
    return sim, records


def total(sim, kind):
    return sum(getattr(engine.core.status(0.0), kind) for engine in sim.engines.values())


@each_seed(1, most=2)
@pytest.mark.parametrize("scheduling", [Scheduling.SLO, Scheduling.DB])
def test_slices_replace_preemptions(scheduling, seed):
    trace = trace_of(seed, 8.0)
    plain, _ = run(mesh(None, scheduling=scheduling), trace, seed=seed)
    sliced, records = run(mesh(64, scheduling=scheduling), trace, seed=seed)
    assert total(plain, "preemptions_total") > 0
    assert total(sliced, "preemptions_total") == 0
    assert total(sliced, "slices_offloaded_total") > 0
    assert {record.outcome for record in records} <= {Outcome.FINISHED, Outcome.REJECTED}


@each_seed(1, most=2)
@pytest.mark.parametrize("scheduling", [Scheduling.SLO, Scheduling.DB, Scheduling.MLFQ])
def test_coasting_changes_nothing(scheduling, seed):
    trace, what = trace_of(seed, 5.0), mesh(32, scheduling=scheduling)
    exact, coasting = (run(what, trace, seed=seed, coasts=coasts) for coasts in (False, True))
    assert total(exact[0], "slices_offloaded_total") == total(coasting[0], "slices_offloaded_total") > 0
    times = [{record.id: record.e2e_s for record in records} for _, records in (exact, coasting)]
    assert times[1] == pytest.approx(times[0], abs=1e-9)


@each_seed(1, most=2)
def test_what_is_offloaded_when_its_engine_dies_goes_on_elsewhere(seed):
    faults = [Kill("engine-1", 4.0 + seed / 7, 3.0), Loss(0.01, ("*",), ("*",))]
    what = mesh(64, count=3, slo=PATIENT)
    _, records = run(what, trace_of(seed, 6.0), faults=faults, seed=seed)
    assert {record.outcome for record in records} == {Outcome.FINISHED}


def test_newcomers_do_not_keep_a_offloaded_request_from_going_on():
    newcomers = [TraceRequest(1.0 + 0.1 * number, 700, 120) for number in range(250)]
    sim, records = run(mesh(64, count=1), [TraceRequest(0.0, 900, 800), *newcomers])
    assert total(sim, "slices_offloaded_total") > 0
    [long] = [record for record in records if record.input_tokens == 900]
    assert long.meets_tpot, f"{long.tpot_s:.3f} s a token"
