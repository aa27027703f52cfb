"""Slices in a mesh: gateways pool and batch, engines run static batches, and nothing is lost on the way."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from mesh.topology.schema import PolicySpec, Scheduling, Slo
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from router.history.records import Outcome
from simulation.faults.faults import Kill, Loss
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, assert_all_ended_once, simulation, topology

PATIENT = Slo(1e6, 1e3)
SLICE = 32


def mesh(scheduling=Scheduling.PADDED, *, num_gateways=1, stall_s=1e6, **parameters):
    what = topology(
        {f"engine-{index}": Role.MULTIPLEX for index in range(3)},
        slo=PATIENT,
        num_gateways=num_gateways,
        max_running=16,
        chunk_tokens=10**6,
    )
    return replace(
        what,
        engines=tuple(replace(engine, scheduling=scheduling) for engine in what.engines),
        policy=PolicySpec("slices", {"slice_tokens": SLICE, "interval_s": 0.5, **parameters}),
        timing=Timing(stall_s=stall_s),
    )


def trace_of(seed, count=60, longest=120):
    random = Random(seed)
    return [TraceRequest(0.1 * number, random.randint(1, 1024), random.randint(1, longest)) for number in range(count)]


def run(what, trace, **options):
    sim, records = simulation(what, **options), []
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    return records


def times(records):
    return {record.id: record.e2e_s for record in records}


@pytest.mark.parametrize("scheduling", [Scheduling.PADDED, Scheduling.STATIC, Scheduling.SLO])
@pytest.mark.parametrize("parameters", [{}, {"batching": "none"}, {"balancing": "round_robin", "factor": 0.0}])
def test_a_request_is_dispatched_once_for_each_slice_of_its_answer(scheduling, parameters):
    trace = trace_of(1)
    records = run(mesh(scheduling, **parameters), trace)
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    for record in records:
        assert record.attempts == -(-record.output_tokens // SLICE)


@pytest.mark.parametrize("scheduling", [Scheduling.PADDED, Scheduling.STATIC, Scheduling.SLO])
def test_coasting_changes_nothing(scheduling):
    trace = trace_of(2)
    plain, coasting = (times(run(mesh(scheduling), trace, coasts=coasts)) for coasts in (False, True))
    assert coasting == pytest.approx(plain, abs=1e-9)


def test_padding_costs_time():
    trace = trace_of(3)
    padded, static = (times(run(mesh(scheduling), trace)) for scheduling in (Scheduling.PADDED, Scheduling.STATIC))
    assert sum(padded.values()) > 1.1 * sum(static.values())


def test_gateways_level_the_engines_each_for_itself():
    trace = trace_of(4, 120)
    records = run(mesh(num_gateways=3), trace)
    shares = Counter(record.prefill_engine for record in records)
    assert min(shares.values()) > 20


@each_seed(range(4))
def test_what_an_engine_held_when_it_died_goes_on_elsewhere(seed):
    faults = [Kill("engine-1", 2.0 + seed / 7, 2.0), Loss(0.02, ("*",), ("*",))]
    records = run(mesh(stall_s=20.0), trace_of(seed, 40), faults=faults, seed=seed)
    assert {record.outcome for record in records} == {Outcome.FINISHED}


@pytest.mark.parametrize("scheduling", [Scheduling.STATIC, Scheduling.SLO])
def test_who_has_begun_gets_a_next_slice_though_newcomers_fill_the_engines(scheduling):
    """Newcomers are short, so batches of theirs are formed, and sent, first."""
    what = mesh(scheduling, slice_tokens=16)
    engines = tuple(replace(engine, max_running=2, max_waiting=1) for engine in what.engines[:2])
    services = tuple(replace(service, slo=Slo(5.0, 1e3)) for service in what.services)
    random = Random(5)
    newcomers = [TraceRequest(0.02 * number, random.randint(50, 200), 12) for number in range(1, 1000)]
    records = run(replace(what, engines=engines, services=services), [TraceRequest(0.0, 900, 200), *newcomers])
    [long] = [record for record in records if record.input_tokens == 900]
    assert long.outcome is Outcome.FINISHED
    assert long.e2e_s < 15.0, "it takes 5.5 s alone"
