"""Simulated engines with disciplines: what coasts decides as what computes step by step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import median

import pytest

from bench.papers.seallm import devices
from mesh.topology.schema import EngineSpec, Scheduling, ServiceSpec
from mesh.wire.control import Role
from router.history.records import Record
from simulation.cluster import Simulation
from simulation.engines.coasting import Coast
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from tests.simulation.small import Profile, assert_all_ended_once, run, simulation, topology
from tests.simulation.test_cluster import poisson

TWO = {"a": Role.MULTIPLEX, "b": Role.MULTIPLEX}


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("scheduling", [Scheduling.DB, Scheduling.FCFS, Scheduling.ROUND_ROBIN])
def test_coasting_changes_nothing(scheduling: Scheduling, scarce: bool):
    what = topology(TWO, "least_loaded", scheduling=scheduling)
    profile = Profile(kv_memory_bytes=500 * 16 * 327_680) if scarce else Profile()
    trace = poisson(6.0, 6.0)
    exact, coasting = (
        {record.id: record for record in run(what, trace, profile=profile, coasts=coasts)} for coasts in (False, True)
    )
    for id_, one in exact.items():
        assert coasting[id_].decode_engine == one.decode_engine
        assert coasting[id_].e2e_s == pytest.approx(one.e2e_s, rel=1e-9)


@pytest.mark.parametrize("scheduling", Scheduling)
def test_handed_over_or_not_every_request_ends_once(scheduling: Scheduling):
    what = topology({"p": Role.PREFILL, "m": Role.MULTIPLEX, "d": Role.DECODE}, scheduling=scheduling, starvation_s=2.0)
    sim, records, trace = simulation(what), [], poisson(8.0, 5.0)
    sim.run("large", trace, records.append)
    assert_all_ended_once(sim, records, trace)


SHARED = devices.catalogue({"chat": "llama2-7b", "code": "llama2-13b"})


def shared(
    trace: Sequence[TraceRequest],
    scheduling: Scheduling,
    *,
    coasts: bool,
    usual: Mapping[str, tuple[int, int]] | None = None,
    policy: str = "round_robin",
    **options: object,
) -> list[Record]:
    """Two engines, each with both services, of which the ``usual`` lengths are known."""
    small = topology(TWO, policy)
    engines = tuple(
        EngineSpec(name, role, SHARED.services, max_running=64, max_waiting=10**6, scheduling=scheduling, **options)
        for name, role in TWO.items()
    )
    services = tuple(ServiceSpec(name, "model", devices.SLO) for name in SHARED.services)
    for name, (prompt, answer) in (usual or {}).items():
        services = tuple(
            replace(one, usual_prompt=prompt, usual_answer=answer) if one.name == name else one for one in services
        )
    profile = SharedProfile.of({name: SHARED.profile(name, 1) for name in SHARED.services})
    what = replace(small, engines=engines, services=services)
    sim = Simulation(what, dict.fromkeys(TWO, profile), seed=0, physics=Physics(), slo=SloRule(), coasts=coasts)
    records: list[Record] = []
    sim.run("chat", trace, records.append)
    return records


def mixed(seed: int, rate: float, span_s: float = 5.0) -> list[TraceRequest]:
    """Answers of very different lengths, so that services overtake each other and budgets run out."""
    random, at_s, trace = Random(seed), 0.0, []
    while at_s < span_s:
        service = random.choice(SHARED.services)
        num_output = min(1500, 1 + round(random.expovariate(1 / (60 if service == "code" else 400))))
        trace.append(TraceRequest(at_s, random.randint(10, 1200), num_output, service=service))
        at_s += random.expovariate(rate)
    return trace


@pytest.mark.parametrize(
    ("scheduling", "options"),
    [
        (Scheduling.DB, {}),
        (Scheduling.DB, {"starvation_s": 1.0}),
        (Scheduling.DB, {"strict_phases": True}),
        (Scheduling.MLFQ, {}),
        (Scheduling.SJF, {"starvation_s": 1.0}),
        (Scheduling.FCFS, {}),
    ],
    ids=str,
)
def test_engines_coast_beside_others_that_wait(scheduling: Scheduling, options: dict[str, object], monkeypatch):
    """While it stays one service's turn, its steps are passed by; who goes when is the same."""
    passed = Counter[str]()
    seen = Coast.pass_until

    def count(coast: Coast, now: float) -> tuple[int, float]:
        num_steps, ended_at = seen(coast, now)
        passed["steps"] += num_steps
        return num_steps, ended_at

    monkeypatch.setattr(Coast, "pass_until", count)
    exact, coasting = (
        {record.id: record for record in shared(mixed(1, 4.0, 2.0), scheduling, coasts=coasts, **options)}
        for coasts in (False, True)
    )
    assert exact.keys() == coasting.keys()
    for request, record in exact.items():
        assert coasting[request].e2e_s == pytest.approx(record.e2e_s, abs=1e-6)
        assert coasting[request].ttft_s == pytest.approx(record.ttft_s, abs=1e-6)
    assert passed["steps"] > 100


def test_a_short_service_does_not_wait_for_a_long_one_before_its_requests_have_ended():
    """If the topology says how long requests usually are: else both are taken for the same."""
    trace = [TraceRequest(0.05 * n, 300, 600, service="chat") for n in range(40)]
    trace += [TraceRequest(2.0 + 0.5 * n, 100, 20, service="code") for n in range(20)]
    trace.sort(key=lambda request: request.at_s)
    mean_s = {}
    for known in (False, True):
        usual = {"chat": (300, 600), "code": (100, 20)} if known else {}
        records = shared(trace, Scheduling.DB, coasts=True, usual=usual)
        code = [record.e2e_s for record in records if record.service == "code"]
        mean_s[known] = sum(code) / len(code)
    assert mean_s[True] < 0.5 * mean_s[False]


@pytest.mark.parametrize("policy", ["foresight", "elastic"])
def test_policies_foresee_first_tokens_on_engines_with_a_discipline(policy: str):
    """Predicted as if engines went by promises, half of them would come half a second later or more."""
    records = shared(mixed(0, 14.0), Scheduling.DB, coasts=True, policy=policy)
    errors = [abs(one.ttft_s - one.predicted_ttft_s) for one in records if one.ttft_s and one.predicted_ttft_s]
    assert len(errors) > 0.9 * len(records)
    assert median(errors) < 0.1
