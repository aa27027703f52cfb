"""Engines without gateways: open loops and closed ones."""

import pytest

from bench.simulated import make_fleet, modelled_engine
from engines.costs.named_profiles import load_profile
from engines.costs.serving_systems import serving_system
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from simulation.engines.direct import DirectEngines
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest

PRESET = "h100-qwen3-32b-tp2"
TRACE = [TraceRequest(0.0, 512, 20, service="chat") for _ in range(40)]


def engines(*, imitates: str | None = None) -> DirectEngines:
    system, profile = serving_system("vllm-0.12"), load_profile(PRESET)
    engine = modelled_engine("one", "chat", PRESET, imitates=imitates, **system.settings)
    topology = make_fleet("mesh", ServiceSpec("chat", "", Slo(100.0, 100.0)), [engine], PolicySpec("round_robin"))
    profiles = {"one": profile if imitates is None else system.on(profile)}
    return DirectEngines(topology, profiles, seed=0, physics=Physics())


@pytest.mark.parametrize("concurrency", [1, 4, 100])
def test_in_a_closed_loop_as_many_requests_are_on_their_way_as_it_has(concurrency):
    records = engines().run_closed(TRACE, concurrency)
    assert len(records) == len(TRACE)
    starts = [(record.arrived_s, 1) for record in records]
    ends = [(record.arrived_s + record.e2e_s, -1) for record in records if record.e2e_s is not None]
    on_their_way = most = 0
    for _, change in sorted(starts + ends, key=lambda event: (round(event[0], 9), event[1])):
        on_their_way += change
        most = max(most, on_their_way)
    assert most == min(concurrency, len(TRACE))


def test_a_request_of_an_imitated_system_takes_its_way_besides_its_iterations():
    bare, imitated = (engines(imitates=name).run_closed(TRACE[:1], 1)[0] for name in (None, "vllm-0.12"))
    assert bare.ttft_s is not None
    assert imitated.ttft_s is not None
    host_s = (serving_system("vllm-0.12").per_step_ms + serving_system("vllm-0.12").per_request_ms) / 1e3
    assert imitated.ttft_s - bare.ttft_s == pytest.approx(serving_system("vllm-0.12").request_ms / 1e3 + host_s)
