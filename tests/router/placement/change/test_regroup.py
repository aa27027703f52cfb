"""Devices change hands when their supervisor lets them, services that would be lost are loaded elsewhere first."""

from collections.abc import Mapping

from msgspec.structs import replace

from mesh.wire.control import EnginePlace, LoadService, Role, SetRunning
from mesh.wire.status import ChildStatus, EngineStatus, FailedLoad
from router.placement.change.changeover import Changeover, Patience, Stage
from router.placement.change.regroup import RegroupChange
from router.placement.search.span import Regrouping
from tests.router.cluster import M0, make_status

PLACES = {name: EnginePlace(3, 2, ("a", "b"), Role.MULTIPLEX) for name in ("o", "w")}
JOINED = Regrouping(("n-0", "n-1"), ("w",))
SUPERVISOR = dict.fromkeys(("n-0", "n-1", "o", "w"), "supervisor")


def engine(*services: str) -> EngineStatus:
    return make_status(M0, services=services)


BEFORE = {"n-0": engine("a"), "n-1": engine("b"), "o": engine("a", "b")}
AFTER = {"o": engine("a", "b"), "w": engine("a", "b")}


def children(**states: str) -> Mapping[str, ChildStatus]:
    names = {"n0": "n-0", "n1": "n-1", "w": "w"}
    return {names[one]: ChildStatus(names[one], "engine", None, state, 0) for one, state in states.items()}


RUNNING = children(n0="running", n1="running", w="standby")


def change() -> RegroupChange:
    return RegroupChange([JOINED], PLACES, SUPERVISOR, 0.0, repeat_s=1.0, plan_s=100.0)


def test_a_supervisor_is_asked_until_it_listens():
    one, asked = change(), [("supervisor", SetRunning("w", True))]
    assert one.orders(BEFORE, RUNNING, 0.0) == asked
    assert one.orders(BEFORE, RUNNING, 0.5) == []
    assert one.orders(BEFORE, RUNNING, 1.0) == asked
    assert one.orders(BEFORE, children(n0="leaving", n1="leaving", w="standby"), 2.0) == []
    assert one.orders(AFTER, children(n0="standby", n1="standby", w="running"), 9.0) == []
    assert one.is_over
    assert not one.has_failed


def test_a_service_that_only_engines_have_which_end_is_loaded_first():
    one, lacking = change(), {**BEFORE, "o": engine("a")}
    assert one.orders(lacking, RUNNING, 0.0) == [("o", LoadService("b"))]
    assert one.orders({**lacking, "o": replace(engine("a"), loading=["b"])}, RUNNING, 1.0) == []
    assert one.orders(BEFORE, RUNNING, 2.0) == [("supervisor", SetRunning("w", True))]


def test_a_load_that_fails_leaves_devices_as_they_are():
    one, lacking = change(), {**BEFORE, "o": engine("a")}
    one.orders(lacking, RUNNING, 0.0)
    failed = replace(engine("a"), failed_loads=[FailedLoad("b", "it is damaged", 1)])
    assert one.orders({**lacking, "o": failed}, RUNNING, 1.0) == []
    assert one.reason == "o did not load b: it is damaged"


def test_engines_that_are_back_tell_that_the_start_failed():
    one = change()
    one.orders(BEFORE, RUNNING, 0.0)
    one.orders(BEFORE, children(n0="leaving", n1="standby", w="standby"), 1.0)
    one.orders({"o": engine("a", "b")}, children(n0="standby", n1="standby", w="starting"), 2.0)
    back = dict(children(n0="starting", n1="starting", w="standby"))
    back["w"] = ChildStatus("w", "engine", None, "standby", 0, "exit code 2: no memory")
    one.orders({"o": engine("a", "b")}, back, 3.0)
    assert (one.has_failed, one.reason) == (True, "w did not start: exit code 2: no memory")
    assert one.left == ("w",)


def test_a_plan_is_announced_when_its_engines_run():
    plan = Changeover(3, PLACES, Patience(1.0), 0.0, regroup=change())
    assert plan.doing == "regrouping: covering services"
    plan.orders(BEFORE, 0.0, RUNNING)
    assert plan.doing == "regrouping: w takes the place of n-0 and n-1"
    plan.orders(AFTER, 30.0, children(n0="standby", n1="standby", w="running"))
    assert plan.stage is Stage.ANNOUNCING
    assert {engine for engine, _ in plan.orders(AFTER, 30.1)} == {"o", "w"}
