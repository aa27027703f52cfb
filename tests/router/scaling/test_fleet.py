"""What the scaler knows of engines, and of hosts that nobody holds yet."""

from pathlib import Path

import pytest

from mesh.topology.parse import load
from mesh.wire.control import SetRunning
from mesh.wire.frames import Sender
from mesh.wire.status import ChildStatus, SupervisorStatus
from router.scaling.fleet import DOWN_S, ROOM_S, Fleet, ScaleOrder
from router.scaling.pools import EnginePhase

TEXT = """
[cluster]
on = "ray"
[hosts.near]
[hosts.far]
[services.s]
model = "m"
[engines.e]
host = "far"
[gateways.g]
host = "near"
[placement]
host = "near"
mode = "off"
"""
START = SetRunning("e", True)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(load(Path("t.toml"), TEXT))


def hear(fleet: Fleet, host: str, *children: ChildStatus, away: tuple[str, ...] = (), now: float = 0.0) -> None:
    status = SupervisorStatus(1, host, 1, list(children), away=list(away))
    fleet.hear_supervisor(Sender(f"supervisor-{host}", 1), status, now)


def engine(state: str) -> ChildStatus:
    return ChildStatus("e", "engine", 1, state, 0, None)


def test_engines_of_hosts_that_are_nowhere_are_on_standby(fleet: Fleet):
    assert fleet.phase("e", 0.0) is EnginePhase.UNKNOWN
    hear(fleet, "near", away=("far",))
    assert fleet.phase("e", 0.0) is EnginePhase.STANDBY
    assert fleet.may_start("e", 0.0)


def test_only_the_nearest_supervisor_is_believed_about_hosts(fleet: Fleet):
    hear(fleet, "far", engine("running"), away=("far",))
    assert fleet.phase("e", 0.0) is EnginePhase.SERVING


def test_an_engine_that_died_counts_until_it_does_not_come_back(fleet: Fleet):
    hear(fleet, "far", engine("restarting"))
    assert fleet.phase("e", 0.0) is EnginePhase.STARTING
    hear(fleet, "far", engine("restarting"), now=DOWN_S)
    assert fleet.phase("e", DOWN_S) is EnginePhase.DOWN
    assert not fleet.may_start("e", DOWN_S), "its supervisor does"
    hear(fleet, "far", engine("starting"), now=DOWN_S + 1)
    assert fleet.phase("e", DOWN_S + 1) is EnginePhase.STARTING


def test_room_is_asked_for_near_and_the_start_of_the_engine_itself_once_its_host_is_there(fleet: Fleet):
    hear(fleet, "near", away=("far",))
    assert fleet.order("e", True, 0.0) == ScaleOrder("supervisor-near", START)
    assert fleet.phase("e", ROOM_S - 0.1) is EnginePhase.STARTING
    assert fleet.phase("e", ROOM_S) is EnginePhase.STANDBY, "it is asked for again"
    fleet.order("e", True, ROOM_S)
    hear(fleet, "near")
    hear(fleet, "far", engine("standby"), now=ROOM_S + 1)
    assert fleet.phase("e", ROOM_S + 1) is EnginePhase.STANDBY
    assert fleet.order("e", True, ROOM_S + 1) == ScaleOrder("supervisor-far", START)
    hear(fleet, "far", engine("running"), now=ROOM_S + 2)
    assert fleet.phase("e", ROOM_S + 2) is EnginePhase.SERVING
