"""Services that take turns on the engines that they share: each one that decodes there makes all tokens come later."""

from pathlib import Path
from random import Random

import pytest

from bench.simulated import attainment, make_simulation, serve
from engines.costs.named_profiles import load_profile
from engines.memory.pages import PagePool
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Outcome
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest

PROFILE, SERVICES = "a100-llama2-70b-tp4", ("a", "b", "c", "d")  # a decode step takes 27 ms
ROLES = {"prefill": Role.PREFILL, "m0": Role.MULTIPLEX, "m1": Role.MULTIPLEX}
SLO = Slo(1.0, 0.06)


def serve_by(policy, roles, requests, slo, noise=0.0, **settings):
    """Those of `SERVICES` that are asked for, on engines that hold all."""
    names = tuple(sorted({request.service for request in requests}))
    engines = [
        EngineSpec(id_, role, names, backend="simulated", profile=PROFILE, **settings) for id_, role in roles.items()
    ]
    services = [ServiceSpec(name, PROFILE, slo) for name in names]
    gateways = (GatewaySpec("gateway"),)
    topology = Topology("turns", Path(), tuple(services), tuple(engines), gateways, policy=policy)
    simulation = make_simulation(topology, load_profile(PROFILE), 0, physics=Physics(noise=noise), coasts=True)
    return serve(simulation, names[0], requests)


@pytest.mark.parametrize(
    ("policy", "noise"), [("tropical", 0.0), ("elastic", 0.0), ("elastic", 0.1), ("foresight", 0.1)]
)
def test_engines_decode_no_more_services_than_promises_leave_time_for(policy, noise):
    """Two, in turns: they take 54 of 60 ms. That steps take longer and shorter, one by one, makes no answer late."""
    random = Random(0)
    requests = [
        TraceRequest(0.25 * number, random.randint(64, 192), random.randint(64, 192), service=random.choice(SERVICES))
        for number in range(80)
    ]
    assert attainment(serve_by(PolicySpec(policy), ROLES, requests, SLO, noise)) >= 0.8


@pytest.mark.parametrize("policy", ["foresight", "packing", "elastic"])
def test_short_prompts_do_not_wait_for_the_turns_of_long_ones_that_nobody_foresaw(policy):
    random, tokens = Random(0), {"a": 300, "b": 3000}
    drawn = [(random.choice("ab"), random.uniform(0.5, 1.5)) for _ in range(160)]
    requests = [
        TraceRequest(number / 8, round(part * tokens[name]), 48, service=name, slo_ttft_s={"a": 1.0, "b": 5.0}[name])
        for number, (name, part) in enumerate(drawn)
    ]
    roles = {"p": Role.PREFILL, "d0": Role.DECODE, "d1": Role.DECODE}
    settings = {"scheduling": Scheduling.ROUND_ROBIN, "chunk_tokens": 2048, "max_running": 256}
    records = serve_by(PolicySpec(policy), roles, requests, Slo(1.0, 0.1), **settings)
    short = [one for one in records if one.service == "a" and one.outcome is Outcome.FINISHED]
    assert len(short) >= 50
    assert attainment(short) >= 0.6


def test_prompts_of_all_services_are_computed_in_the_order_of_their_deadlines():
    """`elastic` foresees that. In turns of services, long prompts spent the slack that short ones counted on."""
    random, tokens = Random(0), {"a": 300, "b": 3000}
    drawn = [(random.choice("ab"), random.uniform(0.5, 1.5)) for _ in range(160)]
    requests = [
        TraceRequest(number / 9, round(part * tokens[name]), 90, service=name, slo_ttft_s={"a": 1.0, "b": 5.0}[name])
        for number, (name, part) in enumerate(drawn)
    ]
    roles = {f"m{number}": Role.MULTIPLEX for number in range(3)}
    settings = {"chunk_tokens": 2048, "max_running": 256}
    records = serve_by(PolicySpec("elastic"), roles, requests, Slo(1.0, 0.1), **settings)
    short = [one for one in records if one.service == "a"]
    assert attainment(short) >= 0.9


def test_the_memory_of_an_engine_is_checked_once_for_all_its_services(monkeypatch):
    checked = []

    def check(pages):
        checked.append(pages)

    monkeypatch.setattr(PagePool, "check_invariants", check)
    requests = [TraceRequest(0.0, 10, 2, service=name) for name in SERVICES]
    serve_by(PolicySpec("least_loaded"), {"m0": Role.MULTIPLEX}, requests, SLO)
    assert len(checked) == 1
