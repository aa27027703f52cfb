"""What a gateway knows of the mesh, as Prometheus reads it."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from mesh.topology.parse import load
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import ChildStatus, Wanted
from router.api.metrics.mesh import MeshHealth, MeshReaders
from tests.router.cluster import D0, D1, P0, make_status

TOPOLOGY = """
[services.chat]
model = "."
[engines.prefill]
count = 2
role = "prefill"
[engines.decode]
count = 3
standby = 1
role = "decode"
"""


@pytest.fixture(scope="module")
def topology():
    return load(Path("mesh.toml"), TOPOLOGY)


def value_of(topology, statuses=None, children=None, wanted=(), in_flight=None, waiting=None):
    readers = MeshReaders(
        lambda: statuses or {}, lambda: children or {}, lambda: wanted, lambda: in_flight or {}, lambda: waiting or {}
    )
    registry = CollectorRegistry()
    registry.register(MeshHealth(topology, readers))
    return lambda name, **labels: registry.get_sample_value(name, labels)


def states(value, engine):
    names = [*ProcessState, "missing"]
    return [str(state) for state in names if value("meshserve_engine_state", engine=engine, state=state)]


def test_an_engine_that_should_run_and_is_not_heard_is_missing(topology):
    children = {
        D1: ChildStatus(D1, "engine", 7, "running", 0),
        "prefill-1": ChildStatus("prefill-1", "engine", None, "stopped", 0),
    }
    value = value_of(topology, {D0: make_status(D0, state=ProcessState.DRAINING)}, children)
    assert states(value, D0) == ["draining"]
    assert states(value, D1) == ["missing"]
    assert states(value, P0) == ["missing"]  # nobody has heard its supervisor
    assert states(value, "prefill-1") == []
    assert states(value, "decode-2") == []  # on standby


def test_restarts_are_those_that_supervisors_count(topology):
    value = value_of(topology, children={D0: ChildStatus(D0, "engine", None, "restarting", 4)})
    assert value("meshserve_process_restarts_total", process=D0) == 4
    assert value("meshserve_process_state", process=D0, state="restarting") == 1
    assert value("meshserve_process_state", process=D0, state="running") == 0


def test_ready_engines_and_those_that_are_short_are_told_as_zero_too(topology):
    statuses = {D0: make_status(D0), D1: make_status(D1, state=ProcessState.DRAINING), P0: make_status(P0)}
    value = value_of(topology, statuses, wanted=[Wanted("chat", Role.DECODE, 9, 2)])
    roles = [role.value for role in (Role.PREFILL, Role.DECODE, Role.MULTIPLEX)]
    assert [value("meshserve_engines_ready", model_name="chat", role=role) for role in roles] == [1, 1, 0]
    assert [value("meshserve_engines_short", model_name="chat", role=role) for role in roles] == [0, 2, 0]


def test_requests_of_services_that_the_topology_does_not_have_make_no_series(topology):
    value = value_of(topology, in_flight={"chat": 5, "other": 7}, waiting={"chat": 2})
    assert value("meshserve_requests_in_flight", model_name="chat") == 5
    assert value("meshserve_requests_waiting", model_name="chat") == 2
    assert value("meshserve_requests_in_flight", model_name="other") is None
