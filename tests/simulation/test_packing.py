"""Packing in the simulator: what is accepted is kept, few engines are used, and engines move what is in danger."""

from dataclasses import replace
from random import Random

import pytest

from mesh.rules import Trigger
from mesh.topology.schema import PolicySpec, Rescheduling, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Outcome, Record
from router.policies.parts.groups import Grouping, Sizes
from router.view.cluster_view import MeshPeer, MeshPeers
from simulation.faults.faults import Kill, Slow
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, assert_all_ended_once, simulation, topology

SIX = {f"m{number}": Role.MULTIPLEX for number in range(6)}
SPLIT = {"p0": Role.PREFILL, "p1": Role.PREFILL, **{f"d{number}": Role.DECODE for number in range(4)}}
LENGTHS = [TraceRequest(0.0, prompt, answer) for prompt in (40, 200, 900) for answer in (30, 200, 900)]
SLO = Slo(2.0, 0.035)


def steady(rate: float, seed: int, duration_s: float = 60.0) -> list[TraceRequest]:
    return list(synthesize(LENGTHS, Arrivals(rate), duration_s, Random(seed)))


def serve(what: Topology, trace: list[TraceRequest], seed: int = 0, **options: object) -> list[Record]:
    records: list[Record] = []
    sim = simulation(what, seed=seed, coasts=True, **options)
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    return records


def engines_of(records: list[Record]) -> set[str]:
    return {record.decode_engine for record in records if record.decode_engine is not None}


@pytest.mark.parametrize(("roles", "rate"), [(SIX, 20.0), (SPLIT, 40.0)])
@each_seed(1, most=2)
def test_promises_to_those_that_are_accepted_are_kept_under_overload(roles: dict[str, Role], rate: float, seed: int):
    records = serve(topology(roles, "packing", slo=SLO), steady(rate, seed, 8.0), seed)
    finished = [record for record in records if record.outcome is Outcome.FINISHED]
    assert len(finished) < len(records), "the load is to be too much"
    assert sum(record.meets_slo for record in finished) >= 0.97 * len(finished)


@each_seed(range(2))
def test_light_loads_leave_engines_unused(seed: int):
    trace = steady(0.5, seed)
    assert len(engines_of(serve(topology(SIX, "packing", slo=SLO), trace, seed))) <= 3
    assert len(engines_of(serve(topology(SIX, "join_shortest_queue", slo=SLO), trace, seed))) == 6


def test_the_same_seed_gives_the_same_run():
    what, trace = topology(SIX, "packing", slo=SLO, num_gateways=2), steady(4.0, 1, 20.0)
    assert serve(what, trace) == serve(what, trace)


def test_predictions_do_not_know_what_is_to_come():
    """The first answers are expected to be as long as they may be: 2048 tokens, and not their 30."""
    short = [TraceRequest(0.01 * number, 10, 30) for number in range(20)]
    records: list[Record] = []
    sim = simulation(topology({"m0": Role.MULTIPLEX}, "packing", slo=SLO))
    sim.run(SERVICE, short, records.append)
    [gateway] = sim.gateways.values()
    first = gateway.core.dispatcher.timelines.of("r0")
    assert first is not None
    assert first.decisions[0].decision.numbers["expected_tokens"] == 2048  # type: ignore[union-attr]


def test_engines_move_what_is_in_danger():
    """An engine becomes slower than its costs say: the trigger `promise` moves what it runs before promises break."""
    what = topology({f"m{number}": Role.MULTIPLEX for number in range(3)}, "packing", slo=SLO)
    moving = replace(what, rescheduling=Rescheduling(triggers=(Trigger.PROMISE,)))
    trace, slow = steady(3.0, 3, 20.0), [Slow("m0", 1.5, 8.0, 8.0)]
    kept, moved = (sum(one.meets_tpot for one in serve(each, trace, 3, faults=slow)) for each in (what, moving))
    assert moved > kept


# --- several gateways -------------------------------------------------------------------------------------------------

GATEWAYS = ("gateway-0", "gateway-1")


def in_groups(rate: float, duration_s: float) -> tuple[Topology, list[TraceRequest]]:
    what = topology(SIX, "packing", slo=SLO, num_gateways=2)
    return replace(what, policy=PolicySpec("packing", {"excess": 0.5})), steady(rate, 5, duration_s)


def group_of(gateway: str, gateways: tuple[str, ...] = GATEWAYS) -> frozenset[str]:
    engines = tuple(MeshPeer(engine, Role.MULTIPLEX, frozenset({SERVICE})) for engine in SIX)
    return Grouping(Sizes(1, 512)).group_for("r", MeshPeers(gateway, gateways, engines))


def test_gateways_pack_their_own_groups():
    records = serve(*in_groups(2.0, 20.0))
    for index, gateway in enumerate(GATEWAYS):
        grouped = [one for one in records if one.rule is not None and one.rule.endswith("of its group")]
        used = {one.decode_engine for one in grouped if int(one.id[1:]) % 2 == index}
        assert used
        assert used <= group_of(gateway)
    assert len(grouped) > 0.8 * len(records)


def test_a_dead_gateways_group_is_taken_over():
    """Until its lease has ended nobody knows; then its engines are the other one's."""
    what, trace = in_groups(6.0, 18.0)
    records: list[Record] = []
    sim = simulation(what, faults=[Kill("gateway-1", 4.0)])
    sim.run(SERVICE, trace, records.append)
    left = group_of("gateway-1")
    taken = [
        one.arrived_s
        for one in records
        if one.decode_engine in left and str(one.rule).endswith("of its group") and int(one.id[1:]) % 2 == 0
    ]
    assert min(taken) > 4.0, "until then, they are not its own"
    assert max(taken) > 12.0


def test_no_request_waits_because_of_groups():
    what, trace = in_groups(6.0, 20.0)
    both, alone = serve(what, trace), serve(replace(what, policy=PolicySpec("packing")), trace)
    assert sum(one.meets_slo for one in both) >= 0.97 * sum(one.meets_slo for one in alone)
