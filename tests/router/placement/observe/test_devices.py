"""What the placement daemon knows of engines that span others: who runs, who changes, and who did not start."""

from pathlib import Path

import pytest

from mesh.topology.parse import load
from mesh.wire.control import EnginePlace, Role
from mesh.wire.status import ChildStatus, SupervisorStatus
from router.placement.observe.devices import UNDER_WAY, Devices
from router.placement.observe.failures import FORGIVEN_AFTER

TEXT = """\
[services.a]
model = "m"
[engines.n]
count = 2
backend = "simulated"
profile = "a100-llama3-8b-tp1"
[engines.w]
spans = ["n"]
backend = "simulated"
profile = "a100-llama3-8b-tp2"
[engines.alone]
backend = "simulated"
profile = "a100-llama3-8b-tp1"
"""


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    path = tmp_path / "t.toml"
    path.write_text(TEXT)
    return Devices(load(path))


def says(**states: str) -> SupervisorStatus:
    children = [ChildStatus(name.replace("_", "-"), "engine", 1, state, 0) for name, state in states.items()]
    return SupervisorStatus(1, "local", 1, children)


@pytest.mark.parametrize("state", UNDER_WAY)
def test_devices_change_hands_while_an_engine_comes_or_goes(devices: Devices, state: str):
    devices.hear(says(n_0="running", n_1="running", w="standby"))
    assert not devices.is_changing
    devices.hear(says(w=state))
    assert devices.is_changing
    devices.hear(says(w="standby"))
    assert not devices.is_changing


def test_engines_whose_devices_are_used_in_one_way_are_nobodys_concern(devices: Devices):
    devices.hear(says(alone="starting"))
    assert devices.children == {}
    assert not devices.is_changing


def test_who_did_not_start_is_left_out_for_some_intervals(devices: Devices):
    devices.did_not_begin(["w"], 3)
    assert [devices.ways(interval).failed for interval in (3, 3 + FORGIVEN_AFTER)] == [frozenset("w")] * 2
    assert devices.ways(4 + FORGIVEN_AFTER).failed == frozenset()
    devices.did_not_begin(["w"], 7)
    assert devices.ways(7 + FORGIVEN_AFTER).failed == frozenset("w"), "its last failure counts"


def places(*names: str) -> dict[str, EnginePlace]:
    return {name: EnginePlace(1, len(names), ("a",), Role.MULTIPLEX) for name in names}


def test_a_plan_of_the_engines_that_run_needs_no_change(devices: Devices):
    assert devices.change(["n-0", "n-1"], places("n-0", "n-1"), 0.0, 1.0) is None
    assert devices.change(["n-0", "n-1"], places("w"), 0.0, 1.0) is not None
    assert devices.change(["w"], places("n-0", "n-1"), 0.0, 1.0) is not None
