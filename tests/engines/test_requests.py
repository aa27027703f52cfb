"""Which requests an engine owns: attempts that replace each other, what comes too late, and who is told."""

import pytest

from engines.engine_request import EngineRequest
from engines.requests import MOST_ENDED, REMIND_S, OwnedRequests
from engines.scheduling.service import Service
from kvtransfer.protocol import Send
from mesh.wire.messages import Message
from mesh.wire.requests import Accepted, Epoch, Failed, FailureCode, Held, RefusalCode, Refused, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import GATEWAY, SERVICE

FIRST = Epoch(1)


class World:
    """An engine that owns requests by their epochs alone."""

    def __init__(self, make_spec: MakeSpec) -> None:
        self.engine: VirtualEngine = VirtualMesh().add("only")
        self.owned: OwnedRequests = self.engine.core._owned
        self.service: Service = self.engine.core.residency.services[SERVICE]
        self._make_spec = make_spec

    def request(self, name: str = "r", epoch: Epoch = FIRST, gateway: str = GATEWAY) -> EngineRequest:
        return EngineRequest.of(self._make_spec(name, gateway=gateway), epoch, 0.0, frozenset({0}), 1024)

    def add(self, name: str = "r", epoch: Epoch = FIRST, gateway: str = GATEWAY) -> EngineRequest:
        request = self.request(name, epoch, gateway)
        self.owned._add(request)
        return request

    def submit(self, name: str, epoch: Epoch) -> list[Message]:
        """What the gateway hears of it."""
        effects = self.owned.take(GATEWAY, Submit(self._make_spec(name), epoch), 0.0)
        return [effect.message for effect in effects if isinstance(effect, Send)]


@pytest.fixture
def world(make_spec: MakeSpec) -> World:
    return World(make_spec)


def test_an_attempt_makes_way_for_a_later_one_alone(world: World):
    request = world.add(epoch=Epoch(2))
    assert world.submit("r", Epoch(1)) == []
    assert world.submit("r", Epoch(2)) == []
    assert not request.is_over
    [accepted] = world.submit("r", Epoch(3))
    assert isinstance(accepted, Accepted)
    assert request.is_over
    assert world.owned.by_id["r"].epoch == Epoch(3)


def test_an_attempt_ends_though_the_later_one_is_refused(world: World):
    request = world.add(epoch=Epoch(2))
    world.engine.core.drain(0.0)
    [refused] = world.submit("r", Epoch(3))
    assert isinstance(refused, Refused)
    assert request.is_over
    assert world.owned.by_id == {}


def test_what_has_ended_does_not_come_back(world: World):
    world.owned.end(world.add(epoch=Epoch(2)), 0.0)
    assert world.submit("r", Epoch(2)) == []
    assert world.submit("r", Epoch(2, 1))
    assert world.submit("another", Epoch(0))


def test_no_more_ended_requests_are_remembered_than_may(world: World):
    for number in range(MOST_ENDED + 1):
        world.owned.end(world.add(f"r{number}"), 0.0)
    assert world.submit("r0", Epoch(1)), "it was the first to be forgotten"
    assert world.submit("r1", Epoch(1)) == []


def test_a_hand_over_of_an_attempt_that_was_given_up_is_not_taken(world: World):
    world.add(epoch=Epoch(3))
    late = world.request(epoch=Epoch(2))
    late.blocks += world.service.pool.allocate(2)
    assert world.owned.adopt(world.service, late, 0.0) == []
    assert world.owned.by_id["r"].epoch == Epoch(3)
    assert world.service.pool.num_held == 0


def test_a_hand_over_ends_what_an_earlier_owner_left(world: World):
    earlier, adopted = world.add(epoch=Epoch(2)), world.request(epoch=Epoch(2, 1))
    adopted.blocks += world.service.pool.allocate(2)
    world.owned.adopt(world.service, adopted, 0.0)
    assert earlier.is_over
    assert world.owned.by_id["r"] is adopted


def test_a_request_ends_once(world: World):
    request = world.add()
    [refused] = world.owned.give_back(request, RefusalCode.DRAINING, "draining", 0.0)
    assert refused == Send(GATEWAY, Refused("r", Epoch(1), RefusalCode.DRAINING, "draining"))
    assert world.owned.end(request, 0.0) == []


def test_who_gives_up_a_request_says_why(world: World):
    request = world.add()
    failed = Failed("r", Epoch(1), "no factors", FailureCode.ADAPTER)
    assert world.owned.give_up(request, "no factors", FailureCode.ADAPTER, 0.0) == [Send(GATEWAY, failed)]


def test_a_gateway_that_died_loses_its_own_requests_alone(world: World):
    mine, other = world.add("mine"), world.add("other", gateway="gateway-1")
    [told] = world.owned.lose_gateway(GATEWAY, 0.0)
    assert isinstance(told, Send)
    assert isinstance(told.message, Refused)
    assert (told.message.request, told.message.code) == ("mine", RefusalCode.GATEWAY_SILENT)
    assert (mine.is_over, other.is_over) == (True, False)


def test_gateways_are_reminded_of_decodes_that_wait_for_the_turn_of_their_service(world: World):
    request = world.request()
    request.num_computed = len(request.tokens)
    request.tokens.append(5)
    request.blocks += world.service.pool.allocate(world.service.pool.blocks_for(len(request.tokens)))
    world.owned.adopt(world.service, request, 0.0)
    assert request.is_decoding
    [told] = world.owned.remind(world.engine.core._backlog, 10.0)
    assert (told.to, [one.request for one in told.message.requests]) == (GATEWAY, ["r"])


def test_gateways_are_reminded_now_and_then_of_what_waits(world: World):
    world.add("a")
    world.add("b", gateway="gateway-1")
    backlog = world.engine.core._backlog
    told = world.owned.remind(backlog, 10.0)
    assert {(one.to, isinstance(one.message, Held)) for one in told} == {(GATEWAY, True), ("gateway-1", True)}
    assert world.owned.remind(backlog, 10.0 + REMIND_S - 0.1) == []
    assert len(world.owned.remind(backlog, 10.0 + REMIND_S)) == 2
