"""Servers that are not ours in simulations: they schedule as their profile says."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from engines.costs.profiles import EngineProfile, ServerTraits
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.engines.servers import imitated
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

TRAITS = ServerTraits(chunk_tokens=64, max_running=2, request_s=0.5, block_size=32, prefix_caching=False)
PROFILE = EngineProfile(
    "server", PrefillCost(0.01, 1e-3), DecodeCost(0.01, 0.0), 4, 4 * 10_000, "made up", server=TRAITS
)
TOPOLOGY = Topology(
    "mesh",
    Path(),
    (ServiceSpec("chat", "", Slo(10.0, 1.0)),),
    (EngineSpec("server", Role.MULTIPLEX, ("chat",), backend="openai"),),
    (GatewaySpec("gateway"),),
    policy=PolicySpec("round_robin"),
)


def served(requests, profile=PROFILE, coasts=True, **settings):
    topology = replace(TOPOLOGY, **settings)
    records = []
    physics = Physics(latency_s=0.0)
    simulation = Simulation(topology, {"server": profile}, seed=1, physics=physics, slo=SloRule(), coasts=coasts)
    simulation.run("chat", requests, records.append)
    return sorted(records, key=lambda record: record.arrived_s)


def test_an_engine_takes_what_its_server_has():
    [engine] = imitated(TOPOLOGY, {"server": PROFILE}).engines
    assert (engine.scheduling, engine.chunk_tokens, engine.max_running) == (Scheduling.CONTINUOUS, 64, 2)
    assert (engine.block_size, engine.prefix_caching) == (32, False)
    ours = replace(TOPOLOGY, engines=(replace(TOPOLOGY.engines[0], backend="torch"),))
    assert imitated(ours, {"server": PROFILE}) is ours


def test_a_request_takes_its_way_and_its_iterations():
    [record] = served([TraceRequest(0.0, 100, 3)])
    assert record.ttft_s == pytest.approx(0.5 + (0.01 + 0.064) + (0.01 + 0.036), abs=1e-6)
    assert record.tpot_s == pytest.approx(0.01, abs=1e-6)


def test_decodes_count_for_the_budget_of_an_iteration():
    first, second = served([TraceRequest(0.0, 10, 200), TraceRequest(0.6, 64, 2)])
    assert first.outcome == second.outcome == "finished"
    alone = served([TraceRequest(0.6, 64, 2)])[0].ttft_s
    assert second.ttft_s > alone + 0.01  # 63 tokens fit beside the decode, and one more needs an iteration


def test_no_more_than_the_servers_places_run_and_the_rest_waits_in_order():
    records = served([TraceRequest(0.001 * index, 10 + 40 * (index == 2), 50) for index in range(4)])
    starts = [record.ttft_s for record in records]
    assert starts[1] < 0.6 < starts[2] <= starts[3]  # the longest came third, and the shortest does not pass it


def test_a_prefix_is_found_only_where_the_server_keeps_them():
    requests = [TraceRequest(0.0, 512, 2, blocks=(1,)), TraceRequest(5.0, 600, 2, blocks=(1, 2))]
    keeps = replace(PROFILE, server=ServerTraits(chunk_tokens=64, request_s=0.0))
    forgets = replace(PROFILE, server=ServerTraits(chunk_tokens=64, request_s=0.0, prefix_caching=False))
    assert served(requests, keeps)[1].ttft_s < 0.5 * served(requests, forgets)[1].ttft_s


def test_prompts_beyond_its_context_are_refused_and_answers_end_there():
    traits = replace_struct(TRAITS, max_context=100)
    requests = [TraceRequest(0.0, 100, 3), TraceRequest(10.0, 99, 3), TraceRequest(20.0, 90, 50)]
    for settings in ({}, {"services": (replace(TOPOLOGY.services[0], max_context=1000),)}):
        records = served(requests, replace(PROFILE, server=traits), **settings)
        assert [record.outcome for record in records] == ["failed", "finished", "finished"]
        assert [record.output_tokens for record in records[1:]] == [1, 10]
    assert "no room for an answer in a context of 100" in records[0].reason


@pytest.mark.parametrize("coasts", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_who_comes_after_an_iteration_was_planned_waits_for_it(coasts, ahead):
    traits = replace_struct(TRAITS, request_s=0.0, chunk_tokens=128, plans_ahead=ahead)
    records = served(
        [TraceRequest(0.0, 100, 200), TraceRequest(1.005, 100, 2)], replace(PROFILE, server=traits), coasts=coasts
    )
    # the first one decodes 10 ms a token: 5 ms are left of its step, and a whole one follows if it was planned
    first_s, alone_s = 0.01 + 0.1, 0.01 + 0.101
    left_s = -(1.005 - first_s) % 0.01
    assert records[1].ttft_s == pytest.approx(left_s + 0.01 * ahead + alone_s, abs=1e-6)


def test_who_comes_to_an_idle_server_that_plans_ahead_begins_at_once():
    traits = replace_struct(TRAITS, request_s=0.0, chunk_tokens=128, plans_ahead=True)
    [record] = served([TraceRequest(0.0, 100, 2)], replace(PROFILE, server=traits))
    assert record.ttft_s == pytest.approx(0.01 + 0.1, abs=1e-6)
