"""Blocks that are held for requests of other engines: who is declined, what arrives, and what is free again."""

from collections.abc import Callable

import msgspec
import pytest

from engines.adapters.room import AdapterRoom
from engines.scheduling.service import Service
from engines.transfers.incoming import IncomingTransfers
from engines.transfers.outcomes import Arrived, EngineOutcome
from kvtransfer.protocol import Imported, Send
from mesh.wire.messages import Message
from mesh.wire.requests import Epoch, RefusalCode
from mesh.wire.transfers import Blocks, Commit, Committed, Declined, MemoryRef, Reserve, Reserved
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, SERVICE, SHAPE

NUM_BLOCKS = 8
PEER = "prefill"
MakeReserve = Callable[..., Reserve]


class Receiver:
    """The arrivals of an engine with little memory, and the service that they are for."""

    def __init__(self, freeness: float = 1000.0) -> None:
        core = VirtualMesh().add("decode", num_blocks=NUM_BLOCKS, max_running=2).core
        self.service: Service = core._services[SERVICE]
        self.arrivals = IncomingTransfers(
            core._settings, core._services, lambda peer, ref: True, lambda *_: freeness, AdapterRoom(0)
        )

    @property
    def num_held(self) -> int:
        return self.service.pool.num_held

    def open(self, reserve: Reserve) -> Message:
        """What is answered."""
        [answer] = self.arrivals.open(PEER, reserve, 0.0)
        assert isinstance(answer, Send)
        return answer.message

    def refusal(self, reserve: Reserve) -> RefusalCode:
        answer = self.open(reserve)
        assert isinstance(answer, Declined)
        assert not self.num_held
        return answer.code


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def make_reserve(make_spec: MakeSpec) -> MakeReserve:
    def make(name: str = "r", num_tokens: int = 8, **overrides: object) -> Reserve:
        memory = MemoryRef("here", PEER, 1, PEER)
        reserve = Reserve(f"{name}.t", make_spec(name), Epoch(1, 1), num_tokens, SHAPE, memory, 5.0)
        return msgspec.structs.replace(reserve, **overrides)

    return make


def messages(outcomes: list[EngineOutcome]) -> list[Message]:
    return [outcome.message for outcome in outcomes if isinstance(outcome, Send)]


def test_blocks_are_held_for_a_request_that_fits(receiver: Receiver, make_reserve: MakeReserve):
    assert isinstance(receiver.open(make_reserve(num_tokens=3 * BLOCK_SIZE)), Reserved)
    assert (receiver.num_held, len(receiver.arrivals)) == (3, 1)
    assert receiver.arrivals.expects("r", 1)
    assert not receiver.arrivals.expects("r", 2)


def test_what_does_not_fit_is_declined(receiver: Receiver, make_reserve: MakeReserve):
    too_many = make_reserve(num_tokens=(NUM_BLOCKS + 1) * BLOCK_SIZE)
    assert receiver.refusal(too_many) is RefusalCode.NO_MEMORY


def test_kv_of_another_shape_is_declined(receiver: Receiver, make_reserve: MakeReserve):
    other = msgspec.structs.replace(SHAPE, num_layers=2)
    assert receiver.refusal(make_reserve(shape=other)) is RefusalCode.UNKNOWN_SERVICE


def test_kv_of_another_model_is_declined(receiver: Receiver, make_reserve: MakeReserve):
    assert receiver.refusal(make_reserve(model="another")) is RefusalCode.UNKNOWN_SERVICE


def test_a_service_that_leaves_takes_nobody(receiver: Receiver, make_reserve: MakeReserve):
    receiver.service.is_leaving = True
    assert receiver.refusal(make_reserve()) is RefusalCode.DRAINING


def test_an_engine_that_is_full_with_what_comes_declines(receiver: Receiver, make_reserve: MakeReserve):
    assert isinstance(receiver.open(make_reserve("a")), Reserved)
    assert isinstance(receiver.open(make_reserve("b")), Reserved)
    answer = receiver.open(make_reserve("c"))
    assert isinstance(answer, Declined)
    assert answer.code is RefusalCode.FULL


def test_a_migration_leaves_the_receiver_as_free_as_it_wants(make_reserve: MakeReserve):
    reserve = make_reserve(is_migration=True, min_freeness=100.0)
    assert Receiver(freeness=50.0).refusal(reserve) is RefusalCode.FULL
    assert isinstance(Receiver(freeness=500.0).open(reserve), Reserved)


def test_a_request_arrives_with_what_was_copied(receiver: Receiver, make_reserve: MakeReserve):
    receiver.open(make_reserve())
    blocks = Blocks("r.t", 0, 0, 2 * BLOCK_SIZE, [4, 5], [0, 0], [])
    receiver.arrivals.told(blocks, (), 0.1)
    assert not messages(receiver.arrivals.told(Commit("r.t", [7], 1, 0.2, 0.1), (), 0.2))
    outcomes = receiver.arrivals.imported("r.t", Imported(0, ok=True), 0.3)
    [arrived] = [outcome for outcome in outcomes if isinstance(outcome, Arrived)]
    assert (arrived.request.tokens, arrived.request.num_computed) == ([*range(1, 9), 7], 8)
    assert Committed in map(type, messages(outcomes))
    assert not len(receiver.arrivals)


def test_a_commit_that_comes_again_is_answered_again(receiver: Receiver, make_reserve: MakeReserve):
    receiver.open(make_reserve())
    commit = Commit("r.t", [7], 0, 0.2, 0.1)
    first = receiver.arrivals.told(commit, (), 0.2)
    again = receiver.arrivals.told(commit, (), 0.3)
    assert [type(outcome) for outcome in first if isinstance(outcome, Arrived)] == [Arrived]
    assert [type(message) for message in messages(again)] == [Committed]
    assert not [outcome for outcome in again if isinstance(outcome, Arrived)]


@pytest.mark.parametrize("process", [PEER, "gateway"])
def test_what_is_held_for_a_dead_process_is_free_again(receiver: Receiver, make_reserve: MakeReserve, process: str):
    receiver.open(make_reserve())
    receiver.arrivals.lose_peer("somebody else", 0.1)
    assert receiver.num_held
    receiver.arrivals.lose_peer(process, 0.1)
    assert (receiver.num_held, len(receiver.arrivals)) == (0, 0)


def test_a_cancelled_request_holds_nothing(receiver: Receiver, make_reserve: MakeReserve):
    receiver.open(make_reserve())
    receiver.arrivals.cancel("r", Epoch(0, 5), 0.1)
    assert receiver.num_held  # an earlier attempt was meant
    receiver.arrivals.cancel("r", Epoch(1, 1), 0.1)
    assert not receiver.num_held


def test_memory_is_taken_back_from_migrations_alone(receiver: Receiver, make_reserve: MakeReserve):
    receiver.open(make_reserve("handed"))
    receiver.open(make_reserve("migrates", is_migration=True))
    receiver.arrivals.reclaim(0.1)
    assert receiver.arrivals.expects("handed", 1)
    assert not receiver.arrivals.expects("migrates", 1)


def test_a_peer_that_falls_silent_holds_nothing_for_ever(receiver: Receiver, make_reserve: MakeReserve):
    receiver.open(make_reserve())
    deadline = receiver.arrivals.next_deadline()
    assert deadline is not None
    receiver.arrivals.expire(deadline)
    assert not receiver.num_held
