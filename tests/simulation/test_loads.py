"""Services that come to simulated engines and leave them, as on real ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.costs.presets import load_preset
from engines.costs.profiles import EngineProfile
from engines.effects import LoadModel
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import LoadService, Role, UnloadService
from mesh.wire.frames import Sender
from router.history.records import Outcome
from simulation.engines.models import SimulatedModels
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import SharedProfile
from simulation.faults.faults import FailLoad
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import DECODE, PREFILL, assert_all_ended_once, simulation

LOAD_S = 2.0
HEARTBEAT_S = 5.0
BLOCK, TOKEN_BYTES, NUM_BLOCKS = 16, 4096, 600


def profile(name: str, times: int = 1) -> EngineProfile:
    """``times`` as many bytes a token, and weights that take as many times as long to come."""
    memory = NUM_BLOCKS * BLOCK * TOKEN_BYTES
    small = EngineProfile(name, PREFILL, DECODE, times * TOKEN_BYTES, memory, "made up", num_devices=2)
    return replace(small, weight_bytes=times * 10**9, weight_bytes_per_s=0.5e9 / LOAD_S)


SHARED = SharedProfile({"chat": profile("chat"), "code": profile("code", 2)}, NUM_BLOCKS * BLOCK * TOKEN_BYTES, 2)


def topology(*held: str, heartbeat_s: float = 0.2) -> Topology:
    """An engine for each of the strings: the services that it begins with."""
    engines = tuple(EngineSpec(f"e{n}", Role.MULTIPLEX, tuple(names.split())) for n, names in enumerate(held))
    services = tuple(ServiceSpec(name, "model", Slo(5.0, 0.2)) for name in ("chat", "code"))
    return Topology(
        "loads",
        Path("loads.toml"),
        services,
        engines,
        (GatewaySpec("gateway"),),
        policy=PolicySpec("join_shortest_queue"),
        timing=Timing(heartbeat_s=heartbeat_s, lease_s=5 * heartbeat_s),
    )


def trace(service: str, number: int = 40, every_s: float = 0.25) -> list[TraceRequest]:
    return [TraceRequest(every_s * n, 200, 30, service=service) for n in range(number)]


def play(
    what: Topology,
    requests: list[TraceRequest],
    orders: dict[float, tuple[str, LoadService | UnloadService]],
    **options,
):
    """Orders by the time that they are given."""
    sim = simulation(what, profile=SHARED, **options)
    for at_s, (engine, order) in orders.items():
        sim.kernel.at(at_s, lambda engine=engine, order=order: sim.engines[engine].receive(Sender("mesh", 1), order))
    records = []
    sim.run("chat", requests, records.append)
    return sim, records


def statuses_of(what: Topology, orders: dict[float, tuple[str, LoadService | UnloadService]], requests=None, **options):
    """What the gateway hears of e0, and when."""
    heard = []
    sim = simulation(what, profile=SHARED, **options)
    gateway = sim.gateways["gateway"]
    observe = gateway.core.dispatcher.observe

    def listen(sender, status, now):
        if sender.process == "e0":
            heard.append((now, status))
        return observe(sender, status, now)

    gateway.core.dispatcher.observe = listen
    for at_s, (engine, order) in orders.items():
        sim.kernel.at(at_s, lambda engine=engine, order=order: sim.engines[engine].receive(Sender("mesh", 1), order))
    sim.run("chat", requests or trace("code"), lambda record: None)
    return heard


def served(status) -> set[str]:
    return {service.name for service in status.services}


def test_weights_take_their_bytes_over_the_bandwidth_of_all_devices():
    what = topology("chat")
    models = SimulatedModels(what, what.engines[0], SHARED, Physics(), None)
    assert (models.load_s(LoadModel("chat")), models.load_s(LoadModel("code"))) == (LOAD_S, 2 * LOAD_S)
    slower = SimulatedModels(what, what.engines[0], SHARED, Physics(weight_bytes_per_s=0.125e9), None)
    assert slower.load_s(LoadModel("chat")) == 2 * LOAD_S


def test_presets_say_how_fast_weights_come():
    assert load_preset("a100-llama2-7b-tp1").weight_bytes_per_s == 7e9
    assert load_preset("h100-llama2-7b-tp1").weight_bytes_per_s == 14e9


def test_a_service_comes_after_its_weights_and_is_served():
    what = topology("chat", "code")
    _, records = play(what, trace("code"), {2.0: ("e0", LoadService("code"))})
    by_e0 = [record for record in records if record.decode_engine == "e0"]
    assert by_e0
    assert min(record.arrived_s for record in by_e0) >= 2.0 + 2 * LOAD_S
    assert all(record.outcome is Outcome.FINISHED for record in records)


def test_services_come_one_after_the_other():
    heard = statuses_of(
        topology("chat", "code chat"),
        {1.0: ("e0", UnloadService("chat")), 2.0: ("e0", LoadService("chat")), 2.1: ("e0", LoadService("code"))},
    )
    came = {name: min(at for at, status in heard if at > 2.0 and name in served(status)) for name in ("chat", "code")}
    assert came["chat"] == pytest.approx(2.0 + LOAD_S, abs=0.01)
    assert came["code"] == pytest.approx(2.0 + LOAD_S + 2 * LOAD_S, abs=0.01)


def test_what_is_ordered_and_what_comes_of_it_is_told_at_once():
    """Heartbeats are seconds apart: whoever decides by statuses must not wait for them."""
    what = topology("chat code", "code", heartbeat_s=HEARTBEAT_S)
    heard = statuses_of(what, {1.0: ("e0", UnloadService("chat")), 2.0: ("e0", LoadService("chat"))})
    gone = min(at for at, status in heard if "chat" not in served(status))
    assert gone == pytest.approx(1.0, abs=0.01)
    told = min(at for at, status in heard if status.loading == ["chat"])
    assert told == pytest.approx(2.0, abs=0.01)
    back = min(at for at, status in heard if at > 2.0 and "chat" in served(status))
    assert back == pytest.approx(2.0 + LOAD_S, abs=0.01)


def test_a_service_that_is_leaving_is_told_at_once():
    """While a long answer is on its way, of which nothing else is told."""
    heard = statuses_of(
        topology("chat code", heartbeat_s=HEARTBEAT_S),
        {2.0: ("e0", UnloadService("code"))},
        [TraceRequest(0.0, 200, 300, service="code")],
    )
    left = min(at for at, status in heard if any(service.is_leaving for service in status.services))
    assert left == pytest.approx(2.0, abs=0.04)


def test_a_service_that_cannot_come_is_told_at_once():
    what = topology("chat code", "code", heartbeat_s=HEARTBEAT_S)
    faults = [FailLoad("e0", 1.0)]
    heard = statuses_of(what, {1.1: ("e0", UnloadService("code")), 2.0: ("e0", LoadService("code"))}, faults=faults)
    told = [(at, status) for at, status in heard if status.failed_loads]
    assert told[0][0] == pytest.approx(2.0 + 2 * LOAD_S, abs=0.01)
    assert told[0][1].failed_loads == [("code", "its weights cannot be read", 1)]
    assert served(told[-1][1]) == {"chat"}


def test_memory_of_a_service_that_leaves_is_the_others():
    what = topology("chat code")
    sim, _ = play(what, trace("chat") + trace("code", 1), {5.0: ("e0", UnloadService("code"))})
    [service] = sim.engines["e0"].core._services.values()
    assert (service.name, service.pool.num_free) == ("chat", service.pool.num_blocks)


def test_requests_of_a_service_that_leaves_end_elsewhere():
    what = topology("chat code", "chat code")
    requests = trace("chat") + trace("code")
    requests.sort(key=lambda request: request.at_s)
    sim, records = play(what, requests, {3.0: ("e0", UnloadService("chat"))})
    assert_all_ended_once(sim, records, requests)
    assert all(record.outcome is Outcome.FINISHED for record in records)
    late = [record for record in records if record.service == "chat" and record.arrived_s > 3.1]
    assert {record.decode_engine for record in late} == {"e1"}


def test_coasting_engines_load_and_unload_at_the_same_times():
    what = topology("chat", "code chat")
    requests = [TraceRequest(0.1 * n, 100, 300, service=("chat", "code")[n % 2]) for n in range(60)]
    orders = {1.0: ("e0", LoadService("code")), 7.0: ("e1", UnloadService("code")), 9.0: ("e1", LoadService("code"))}
    outcomes = []
    for coasts in (False, True):
        _, records = play(what, requests, orders, coasts=coasts)
        outcomes.append({record.id: (record.decode_engine, round(record.e2e_s, 6)) for record in records})
    assert outcomes[0] == outcomes[1]


def test_weights_that_do_not_fit_are_refused_and_the_engine_serves_on():
    """``code`` takes 2 GB beside the 1 GB of ``chat``."""
    what = topology("chat", "code")
    limited = replace(what, engines=(replace(what.engines[0], weight_memory_bytes=29 * 10**8), what.engines[1]))
    orders = {2.0: ("e0", LoadService("code")), 9.0: ("e0", UnloadService("chat")), 10.0: ("e0", LoadService("code"))}
    heard = statuses_of(limited, orders, trace("code", 80))
    _, refused = next((at, status) for at, status in heard if status.failed_loads)
    [failed] = refused.failed_loads
    assert f"{failed.service}: {failed.reason}" == (
        "code: engines.e0: weights of code take 1.86 GiB, beside 0.93 GiB of chat: 95.37 MiB more than its "
        "weight_memory, 2.70 GiB"
    )
    assert served(refused) == {"chat"}
    assert refused.weight_memory == 29 * 10**8
    assert [service.weight_bytes for service in refused.services] == [10**9]
    assert served(heard[-1][1]) == {"code"}, "there is room when the other is gone"
