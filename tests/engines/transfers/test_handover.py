"""An engine's transfers in both directions: whom a message is for, and what concerns both."""

from engines.transfers.handover import Handovers
from engines.transfers.outcomes import EngineOutcome
from kvtransfer.protocol import Send
from mesh.wire.messages import Message
from mesh.wire.requests import Epoch
from mesh.wire.transfers import Abort, Commit, Committed, Declined, Reserve, Reserved, Taken
from tests.engines.conftest import MakeSequence, MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import OTHER, SERVICE, SHAPE


class World:
    """The hand-overs of one engine."""

    def __init__(self) -> None:
        self.engine: VirtualEngine = VirtualMesh().add("engine")
        self.handovers: Handovers = self.engine.core._handovers

    def receive(self, sender: str, message: object, now: float = 0.0) -> list[Message]:
        return told(self.handovers.receive(sender, message, (), now))  # type: ignore[arg-type]

    def come(self, make_spec: MakeSpec, transfer: str = "in", sender: str = "prefill") -> list[Message]:
        reserve = Reserve(transfer, make_spec("incoming"), Epoch(1, 1), 8, SHAPE, None, 5.0)
        return self.receive(sender, reserve)

    def leave(self, make_sequence: MakeSequence) -> str:
        request = make_sequence("outgoing")
        request.decode_engine = "decode"
        [reserve] = told(self.handovers.departures.reserve(self.engine.core._services[SERVICE], request, 0.0, 0.0))
        assert isinstance(reserve, Reserve)
        return reserve.transfer


def told(outcomes: list[EngineOutcome]) -> list[Message]:
    return [outcome.message for outcome in outcomes if isinstance(outcome, Send)]


def test_a_message_of_no_transfer_is_answered_if_somebody_waits_for_that():
    world = World()
    for message in (Commit("gone", [], 0, 0.0, None), Reserved("gone", 0, "tcp")):
        [abort] = world.receive("peer", message)
        assert abort == Abort("gone", "no such transfer here")
    for message in (Taken("gone", 0, True), Committed("gone", 0), Abort("gone", "over")):
        assert world.receive("peer", message) == []


def test_a_transfer_listens_to_its_peer_alone(make_spec: MakeSpec, make_sequence: MakeSequence):
    world = World()
    [reserved] = world.come(make_spec)
    assert isinstance(reserved, Reserved | Declined)
    transfer = world.leave(make_sequence)
    assert world.receive("stranger", Abort(transfer, "no")) == []
    assert world.handovers.concern(SERVICE)
    world.receive("stranger", Abort("in", "no"))
    assert world.handovers.departures.owns(transfer, "decode")


def test_both_directions_count(make_sequence: MakeSequence):
    world = World()
    assert world.handovers.is_idle
    assert world.handovers.next_deadline() is None
    transfer = world.leave(make_sequence)
    assert not world.handovers.is_idle
    assert world.handovers.concern(SERVICE)
    assert not world.handovers.concern(OTHER)
    assert world.handovers.next_deadline() == 0.125, "a quarter of the time for an answer"
    world.receive("decode", Abort(transfer, "no"))
    assert world.handovers.is_idle
    assert world.handovers.next_deadline() is None


def test_a_lost_peer_ends_what_goes_to_it(make_sequence: MakeSequence):
    world = World()
    world.leave(make_sequence)
    world.handovers.lose_peer("somebody else", 0.1)
    assert not world.handovers.is_idle
    world.handovers.lose_peer("decode", 0.1)
    assert world.handovers.is_idle
    world.handovers.check_invariants()


def test_time_ends_what_nobody_answers(make_sequence: MakeSequence):
    world = World()
    world.leave(make_sequence)
    assert [type(message) for message in told(world.handovers.expire(0.2))] == [Reserve], "it may be lost"
    assert [type(message) for message in told(world.handovers.expire(0.5))] == [Abort]
    assert world.handovers.is_idle
