"""What moves an engine's requests: orders by hand, a drain, and services that are unloaded."""

import pytest

from engines.core import EngineCore
from engines.effects import DropModel
from kvtransfer.protocol import Send
from mesh.wire.control import Drain, Migrate, UnloadService
from mesh.wire.messages import Message
from mesh.wire.requests import Epoch, RefusalCode, Refused, Submit
from mesh.wire.status import EngineStatus
from mesh.wire.transfers import Declined, Reserve
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE, HashingExecutor, VirtualMemory

ORDER = Migrate("r", "there", "a test")


class Engine:
    """One engine's core, and the status of another one with the same services."""

    def __init__(self, make_spec: MakeSpec, **settings: int) -> None:
        self.core: EngineCore = VirtualMesh().add("here", max_running=1, **settings).core
        self.there: EngineStatus = VirtualMesh().add("there").core.status(0.0)
        self._make_spec = make_spec

    def receive(self, message: object, sender: str = GATEWAY) -> list[Message]:
        effects = self.core.receive(sender, message, (), 0.0)  # type: ignore[arg-type]
        return [effect.message for effect in effects if isinstance(effect, Send)]

    def submit(self, name: str = "r") -> None:
        self.receive(Submit(self._make_spec(name, max_tokens=50), Epoch(1)))

    def decode(self, name: str = "r") -> None:
        """A request that has begun its answer."""
        self.submit(name)
        executor = HashingExecutor(VirtualMemory(64))
        batch, _ = self.core.next_batch(0.0)
        assert batch is not None
        self.core.finish_step(executor.execute(batch), 0.0)

    @property
    def last_abort(self) -> str | None:
        return self.core.status(0.0).last_aborted_migration


@pytest.fixture
def engine(make_spec: MakeSpec) -> Engine:
    return Engine(make_spec)


def test_a_request_that_decodes_moves_by_order(engine: Engine):
    engine.decode()
    [reserve] = engine.receive(ORDER)
    assert isinstance(reserve, Reserve)
    assert reserve.is_migration


@pytest.mark.parametrize(
    ("prepare", "order", "reason"),
    [
        ("nothing", ORDER, "r to there: it is not here"),
        ("submit", ORDER, "r to there: it does not decode now"),
        ("decode", Migrate("r", "here", ""), "r to here: it is there already"),
    ],
)
def test_what_cannot_move_stays_and_says_why(engine: Engine, prepare: str, order: Migrate, reason: str):
    getattr(engine, prepare, list)()
    assert engine.receive(order) == []
    assert engine.last_abort == reason


def test_a_request_moves_once_at_a_time(engine: Engine):
    engine.decode()
    engine.receive(ORDER)
    assert engine.receive(ORDER) == []
    assert engine.last_abort == "r to there: it is on its way already"


def test_an_engine_that_is_drained_sends_its_requests_away(engine: Engine):
    engine.decode("runs")
    engine.submit("waits")
    engine.core.observe("there", engine.there, 0.0)
    messages = engine.receive(Drain())
    assert [message.request for message in messages if isinstance(message, Refused)] == ["waits"]
    assert [message.spec.id for message in messages if isinstance(message, Reserve)] == ["runs"]


def test_a_drained_engine_keeps_what_nobody_can_take(engine: Engine):
    engine.decode("runs")
    engine.submit("waits")
    assert engine.receive(Drain()) == []


def test_requests_end_on_a_drained_engine_that_migrates_none(make_spec: MakeSpec):
    engine = Engine(make_spec, migrates_on_drain=False)
    engine.decode("runs")
    engine.submit("waits")
    engine.core.observe("there", engine.there, 0.0)
    [refused] = engine.receive(Drain())
    assert isinstance(refused, Refused)
    assert refused.request == "waits"
    assert engine.core.look(0.0) == []
    assert engine.core.next_deadline() is None
    batch, _ = engine.core.next_batch(0.0)
    assert batch is not None
    assert [chunk.request for chunk in batch.chunks] == ["runs"]


def test_an_engine_that_declined_is_tried_again_later(engine: Engine):
    engine.decode()
    engine.core.observe("there", engine.there, 0.0)
    [reserve] = engine.receive(Drain())
    assert isinstance(reserve, Reserve)
    assert engine.receive(Declined(reserve.transfer, RefusalCode.FULL, "full"), "there") == []
    retry = engine.core.next_deadline()
    assert retry is not None
    again = [effect.message for effect in engine.core.expire(retry) if isinstance(effect, Send)]
    assert [type(message) for message in again] == [Reserve]


def test_a_drain_can_be_undone(engine: Engine):
    engine.decode()
    engine.receive(Drain())
    engine.receive(Drain(undo=True))
    engine.core.observe("there", engine.there, 0.0)
    assert engine.core.look(0.0) == []


def test_a_service_is_dropped_once_it_is_empty(engine: Engine):
    assert engine.core.receive(GATEWAY, UnloadService(SERVICE), (), 0.0) == [DropModel(SERVICE)]


def test_a_service_that_is_in_use_leaves_after_its_requests(engine: Engine):
    engine.decode()
    assert engine.core.receive(GATEWAY, UnloadService(SERVICE), (), 0.0) == []
    effects = engine.core.lose_peer(GATEWAY, 0.0)
    assert DropModel(SERVICE) in effects
