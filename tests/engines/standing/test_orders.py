"""What an engine does when it is told to drain, to change its role or its services, or of a plan."""

import pytest

from mesh.wire.control import (
    Announce,
    Drain,
    EnginePlace,
    LoadService,
    ProcessState,
    Role,
    SetRole,
    UnloadService,
    UsualLengths,
)
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import Epoch, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import GATEWAY, SERVICE


@pytest.fixture
def engine() -> VirtualEngine:
    return VirtualMesh().add("only")


def tell(engine: VirtualEngine, order: EngineMessage) -> None:
    engine.core.status(0.0)  # after which there is no news
    engine.core.receive("cli", order, (), 0.0)


def test_a_drain_may_be_undone(engine: VirtualEngine):
    tell(engine, Drain())
    assert (engine.core.state, engine.core.has_news) == (ProcessState.DRAINING, True)
    tell(engine, Drain(undo=True))
    assert (engine.core.state, engine.core.has_news) == (ProcessState.READY, True)


def test_who_is_stopping_takes_nothing_again(engine: VirtualEngine):
    engine.core.drain(0.0)
    tell(engine, Drain(undo=True))
    assert engine.core.state is ProcessState.DRAINING


def test_requests_that_were_to_decode_where_they_are_may_move_after_a_change_of_role(
    engine: VirtualEngine, make_spec: MakeSpec
):
    engine.core.receive(GATEWAY, Submit(make_spec(), Epoch(1), stays=True), (), 0.0)
    request = engine.core._requests["r"]
    tell(engine, SetRole(Role.MULTIPLEX, 0))
    assert request.stays, "it has that role"
    tell(engine, SetRole(Role.PREFILL, 0))
    assert not request.stays


def test_a_plan_tells_what_requests_are_like_of_the_services_that_the_engine_is_to_have(engine: VirtualEngine):
    lengths = (UsualLengths(SERVICE, 300, 0), UsualLengths("elsewhere", 5, 5))
    tell(engine, Announce(EnginePlace(1, 1, (SERVICE,), Role.MULTIPLEX), lengths))
    usual = engine.core._orders._usual
    assert usual[SERVICE] == (300, 1), "no answer is shorter than a token"
    assert "elsewhere" not in usual


def test_an_older_plan_tells_nothing(engine: VirtualEngine):
    tell(engine, Announce(EnginePlace(2, 1, (SERVICE,), Role.MULTIPLEX)))
    tell(engine, Announce(EnginePlace(1, 1, (SERVICE,), Role.MULTIPLEX), (UsualLengths(SERVICE, 300, 9),)))
    assert engine.core._orders._usual.get(SERVICE) != (300, 9)


@pytest.mark.parametrize("order", [LoadService("new"), UnloadService(SERVICE)], ids=["load", "unload"])
def test_a_change_of_services_is_news(engine: VirtualEngine, order: LoadService | UnloadService):
    tell(engine, order)
    assert engine.core.has_news


def test_a_service_that_is_unloaded_leaves_and_others_stay():
    engine = VirtualMesh().add("only", services=(SERVICE, "other"))
    tell(engine, UnloadService("other"))
    assert sorted(one.name for one in engine.core.status(0.0).services if not one.is_leaving) == [SERVICE]
