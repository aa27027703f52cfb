from dataclasses import replace
from pathlib import Path

from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Rescheduling, Scheduling, Topology
from mesh.wire.control import Role
from router.placement.observe.conduct import Conduct

ENGINE = EngineSpec("e0", Role.MULTIPLEX, ("chat",), max_running=64, slice_tokens=32, scheduling=Scheduling.SLO)


def topology(*engines: EngineSpec, **settings: object) -> Topology:
    named = tuple(replace(engine, id=f"e{number}") for number, engine in enumerate(engines))
    return Topology("t", Path("t"), (), named, (GatewaySpec("g"),), **settings)  # type: ignore[arg-type]


def test_it_is_the_topologys():
    policy, rules = PolicySpec("foresight", {"margin": 0.1}), Rescheduling()
    conduct = Conduct.of(topology(ENGINE, policy=policy, rescheduling=rules))
    assert conduct == Conduct(policy, Scheduling.SLO, 64, ENGINE.chunk_tokens, 32, True, rules)
    assert not conduct.is_by_fewest_requests


def test_where_engines_differ_it_is_that_of_most():
    other = replace(ENGINE, scheduling=Scheduling.DB, slice_tokens=None)
    assert Conduct.of(topology(other, ENGINE, ENGINE)).scheduling is Scheduling.SLO
    assert Conduct.of(topology(other, ENGINE, other)).scheduling is Scheduling.DB


def test_only_without_slices_and_moves_the_fewest_requests_are_all_that_counts():
    shortest = Conduct(PolicySpec("join_shortest_queue"))
    assert shortest.is_by_fewest_requests
    assert not replace(shortest, slice_tokens=64).is_by_fewest_requests
    assert not replace(shortest, rescheduling=Rescheduling()).is_by_fewest_requests
    assert not Conduct(PolicySpec("join_shortest_queue", {"reject_late": True})).is_by_fewest_requests
