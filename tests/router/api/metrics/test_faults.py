from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from mesh.wire.control import ProcessState
from router.api.metrics.faults import EngineHealth
from router.requests.breakers import Breakers
from tests.router.cluster import D0, P0, make_status


def test_states_migrations_and_breakers_are_exported():
    statuses = {
        D0: make_status(D0, state=ProcessState.DRAINING, num_migrating_out=2, migrations_total=7),
        P0: make_status(
            P0,
            migrations_aborted_total=3,
            preemptions_total=2,
            num_offloaded=5,
            slices_kept_total=9,
            slices_moved_total=8,
            slices_offloaded_total=6,
        ),
    }
    breakers, clock = Breakers(), SimpleNamespace(now=lambda: 9.5)
    for at in (6.0, 7.0, 8.0, 9.0):
        breakers.failed(None, [D0], at)
    breakers.succeeded("r", P0, 9.0)
    registry = CollectorRegistry()
    registry.register(EngineHealth(lambda: statuses, breakers.known, clock))

    def value(name, engine, **labels):
        return registry.get_sample_value(name, {"engine": engine, **labels})

    states = {state: value("meshserve_engine_state", D0, state=state) for state in ProcessState}
    assert states == {state: float(state is ProcessState.DRAINING) for state in ProcessState}
    assert value("meshserve_migrations_running", D0) == 2
    assert value("meshserve_migrations_total", D0) == 7
    assert value("meshserve_migrations_aborted_total", P0) == 3
    assert value("meshserve_preemptions_total", P0) == 2
    assert value("meshserve_offloaded", P0) == 5
    fates = {fate: value("meshserve_slices_total", P0, fate=fate) for fate in ("kept", "moved", "offloaded")}
    assert fates == {"kept": 9, "moved": 8, "offloaded": 6}
    assert value("meshserve_breaker_state", D0, state="open") == 1
    assert value("meshserve_breaker_state", P0, state="closed") == 1
    assert value("meshserve_breaker_openings_total", D0) == 1
    assert value("meshserve_engine_failures_total", D0) == 4
    clock.now = lambda: 10.5
    assert value("meshserve_breaker_state", D0, state="half-open") == 1
