"""What processes say, without services that were removed."""

from msgspec.structs import replace

from mesh.wire.control import EnginePlace, ProcessState, Role
from mesh.wire.placement import Decision, PlacementStatus, ServiceForecast
from router.placement.observe.deployed import of_deployment
from tests.router.cluster import M0, make_status


def place(*services: str) -> EnginePlace:
    return EnginePlace(1, 1, services, Role.MULTIPLEX)


def decision(*services: str) -> Decision:
    forecasts = [ServiceForecast(name, 1.0, (1.0, 0.0), (1.0, 0.0)) for name in services]
    return Decision(1, "replace", "better", 0, 60.0, places={M0: place(*services)}, services=forecasts)


def test_an_engine_neither_has_nor_loads_nor_should_have_what_was_removed():
    said = replace(make_status(M0, services=["a", "gone"]), place=place("a", "gone"), loading=["b", "gone"])
    told = of_deployment(said, {"a", "b"})
    assert ([one.name for one in told.services], told.place, told.loading) == (["a"], place("a"), ["b"])
    assert of_deployment(said, {"a", "b", "gone"}) == said


def test_the_daemon_found_nothing_for_what_was_removed():
    said = PlacementStatus(
        1, ProcessState.READY, "local", 1, "shadow", "listening", 1, 1.0, decision=decision("a", "gone")
    )
    assert of_deployment(said, {"a"}) == replace(said, decision=decision("a"))
    assert of_deployment(replace(said, made=said.decision), {"a"}).made == decision("a")
