"""Whole simulations in which engines move requests by their own rules."""

from dataclasses import replace

import pytest

from mesh.rules import Trigger
from mesh.topology.schema import PolicySpec, Rescheduling, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost
from router.history.records import Outcome, Record
from simulation.cluster import Simulation
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

SEEDS = 2
SPLIT = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "decode-0": Role.DECODE, "decode-1": Role.DECODE}
TWINS = {"a": Role.MULTIPLEX, "b": Role.MULTIPLEX}


def serve(what: Topology, trace: list[TraceRequest], **options: object) -> tuple[Simulation, list[Record]]:
    sim, records = simulation(what, **options), []
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    return sim, sorted(records, key=lambda record: int(record.id[1:]))


def num_migrations(sim: Simulation) -> int:
    return sum(engine.core.status(0.0).migrations_total for engine in sim.engines.values())


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("coasts", [False, True])
@each_seed(SEEDS, most=4)
def test_disaggregation_by_migration_gives_what_the_built_in_path_gives(seed, coasts):
    """The same prefills; a decode begins while its KV is still copied."""
    trace = [TraceRequest(0.11 * number, 200 + 37 * (number * 7 % 50), 30 + number % 40) for number in range(60)]
    slo = Slo(5.0, 0.1)
    _, built_in = serve(topology(SPLIT, "disaggregated", slo=slo), trace, seed=seed, coasts=coasts)
    rule = replace(
        topology(SPLIT, "disaggregated", slo=slo),
        policy=PolicySpec("disaggregated", {"after_prefill": "migrate"}),
        rescheduling=Rescheduling(triggers=(Trigger.ROLE,)),
    )
    sim, by_rule = serve(rule, trace, seed=seed, coasts=coasts)
    assert num_migrations(sim) == len(trace)
    assert {record.outcome for record in (*built_in, *by_rule)} == {Outcome.FINISHED}
    assert mean([one.ttft_s for one in by_rule]) == pytest.approx(mean([one.ttft_s for one in built_in]), rel=0.1)
    assert mean([one.tpot_s for one in by_rule]) == pytest.approx(mean([one.tpot_s for one in built_in]), rel=0.1)


@each_seed(SEEDS, most=4)
def test_decodes_in_danger_are_saved_by_another_engine(seed):
    """Long answers that share one engine by chance would all be late there."""
    profile = Profile(decode=DecodeCost(0.020, 0.005))
    what = topology(TWINS, "round_robin", slo=Slo(5.0, 0.045))
    trace = [TraceRequest(0.05 * number, 100, 400 if number % 2 else 4) for number in range(14)]
    _, before = serve(what, trace, seed=seed, profile=profile)
    rules = Rescheduling(triggers=(Trigger.PROMISE,))
    sim, after = serve(replace(what, rescheduling=rules), trace, seed=seed, profile=profile)
    late_before, late_after = (
        sum(record.tpot_s > 0.045 for record in records if record.tpot_s) for records in (before, after)
    )
    assert num_migrations(sim) >= 2
    assert late_before >= 5
    assert late_after == 0


@each_seed(SEEDS, most=4)
def test_prompts_that_have_not_begun_go_where_they_are_in_time(seed):
    """Each second prompt is long, so one engine has all of these. Nothing is copied: nothing has begun."""
    what = topology(TWINS, "round_robin", slo=Slo(2.0, 1.0))
    trace = [TraceRequest(0.01 * number, 100 if number % 2 else 3000, 1) for number in range(12)]
    _, before = serve(what, trace, seed=seed)
    sim, after = serve(replace(what, rescheduling=Rescheduling(triggers=(Trigger.PROMISE,))), trace, seed=seed)
    late_before, late_after = (sum(record.ttft_s > 2.0 for record in records) for records in (before, after))
    assert late_after < late_before
    assert num_migrations(sim) == 0


@each_seed(SEEDS, most=4)
def test_without_rules_nothing_moves(seed):
    sim, _ = serve(topology(TWINS, "round_robin"), [TraceRequest(0.0, 900, 200)] * 20, seed=seed)
    assert num_migrations(sim) == 0
