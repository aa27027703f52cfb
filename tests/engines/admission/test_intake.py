"""What becomes of a request that is sent to an engine: accepted, refused, invalid, or sent twice."""

import msgspec

from engines.effects import Effect
from kvtransfer.protocol import Send
from mesh.wire.control import Drain
from mesh.wire.messages import Message
from mesh.wire.requests import Accepted, Epoch, Failed, FailureCode, RefusalCode, Refused, Submit, SubmitBatch
from mesh.wire.transfers import Reserve
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import GATEWAY, SERVICE


def one() -> VirtualEngine:
    return VirtualMesh().add("only")


def told(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def send(engine: VirtualEngine, message: Submit | SubmitBatch) -> list[Message]:
    return told(engine.core.receive(GATEWAY, message, (), 0.0))


def test_an_accepted_request_is_counted_by_the_next_status(make_spec: MakeSpec):
    engine = one()
    last = engine.core.status(0.0).seq
    [accepted] = send(engine, Submit(make_spec("r"), Epoch(1)))
    assert accepted == Accepted("r", Epoch(1), last + 1)
    assert engine.core.status(0.0).num_waiting == 1


def test_what_is_said_twice_is_taken_once(make_spec: MakeSpec):
    engine = one()
    message = Submit(make_spec("r"), Epoch(2))
    assert send(engine, message)
    assert send(engine, message) == []
    assert send(engine, msgspec.structs.replace(message, epoch=Epoch(1))) == [], "an attempt before it is over"
    assert engine.core.status(0.0).num_waiting == 1


def test_a_later_attempt_takes_the_place_of_an_earlier_one(make_spec: MakeSpec):
    engine = one()
    send(engine, Submit(make_spec("r"), Epoch(1)))
    [accepted] = send(engine, Submit(make_spec("r"), Epoch(2)))
    assert isinstance(accepted, Accepted)
    assert engine.core._requests["r"].epoch == Epoch(2)
    assert engine.core.status(0.0).num_waiting == 1


def test_an_engine_that_is_drained_refuses(make_spec: MakeSpec):
    engine = one()
    engine.core.receive("cli", Drain(), (), 0.0)
    [refused] = send(engine, Submit(make_spec("r"), Epoch(1)))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.reason) == (RefusalCode.DRAINING, "engine is draining")


def test_an_invalid_request_fails_and_is_tried_nowhere_else(make_spec: MakeSpec):
    spec = msgspec.structs.replace(make_spec("r"), prompt=[])
    [failed] = send(one(), Submit(spec, Epoch(1)))
    assert isinstance(failed, Failed)
    assert failed.code is FailureCode.INVALID


def test_requests_of_a_batch_are_answered_one_by_one_and_belong_together(make_spec: MakeSpec):
    engine = one()
    batch = SubmitBatch([Submit(make_spec(name), Epoch(1)) for name in ("a", "b")])
    assert [answer.request for answer in send(engine, batch) if isinstance(answer, Accepted)] == ["a", "b"]
    send(engine, SubmitBatch([Submit(make_spec("c"), Epoch(1))]))
    send(engine, Submit(make_spec("alone"), Epoch(1)))
    assert [engine.core._requests[name].batch for name in ("a", "b", "c", "alone")] == [1, 1, 2, 0]


def test_blocks_are_asked_for_where_another_engine_is_to_decode(make_spec: MakeSpec):
    engine = one()
    _, reserve = send(engine, Submit(make_spec("away"), Epoch(1), "decode"))
    assert isinstance(reserve, Reserve)
    assert [type(answer) for answer in send(engine, Submit(make_spec("here"), Epoch(1), "only"))] == [Accepted]
    assert [request.id for request in engine.core._services[SERVICE].queue.waiting] == ["here"]
