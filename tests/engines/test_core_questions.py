"""What an engine core says when gateways ask for their requests again."""

from kvtransfer.protocol import Send
from mesh.wire.requests import (
    Delta,
    Epoch,
    FinishReason,
    Held,
    Holding,
    NotHeld,
    Probe,
    ProbeQuestion,
    StepTokens,
)
from tests.engines.conftest import MakeSpec
from tests.engines.core_pairs import two_engines
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, continuation


def not_held(mesh: VirtualMesh, engine: str, *requests: tuple[str, int]) -> list[tuple[str, int]]:
    probe = Probe([ProbeQuestion(request, attempt, 1000) for request, attempt in requests])
    effects = mesh.engines[engine].core.receive(GATEWAY, probe, (), mesh.now)
    said = [effect.message for effect in effects if isinstance(effect, Send)]
    return [request for message in said if isinstance(message, NotHeld) for request in message.requests]


def test_an_engine_says_what_it_does_not_have(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r", 40, max_tokens=40), decode="decode", attempt=3)
    assert not_held(mesh, "prefill", ("r", 3), ("r", 2), ("nobody", 3)) == [("r", 2), ("nobody", 3)]
    assert not_held(mesh, "decode", ("r", 3)) == [("r", 3)], "nothing is reserved yet"
    while not mesh.engines["decode"].core._handovers.arrivals.machines():
        mesh.step()
    assert not_held(mesh, "decode", ("r", 3), ("r", 4)) == [("r", 4)], "it is expected"
    while mesh.engines["prefill"].core._requests:
        assert not_held(mesh, "prefill", ("r", 3)) == []
        assert not_held(mesh, "decode", ("r", 3)) == []
        mesh.step()
    assert not_held(mesh, "prefill", ("r", 3)) == [("r", 3)], "it was handed over"
    assert not_held(mesh, "decode", ("r", 3)) == []
    mesh.settle()
    assert not_held(mesh, "decode", ("r", 3)) == [("r", 3)], "it has ended"


def held(mesh: VirtualMesh, engine: str, *requests: str) -> list[Holding]:
    probe = Probe([ProbeQuestion(request, 1, 0) for request in requests])
    effects = mesh.engines[engine].core.receive(GATEWAY, probe, (), mesh.now)
    said = [effect.message for effect in effects if isinstance(effect, Send)]
    return [holding for message in said if isinstance(message, Held) for holding in message.requests]


def test_an_engine_says_what_it_has_and_how_many_came_before_it(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("e", num_blocks=64, max_running=1)
    for index in range(3):
        mesh.submit("e", make_spec(f"r{index}", 40, max_tokens=12))
    asked = "r2", "r1", "r0", "nobody"
    assert held(mesh, "e", *asked) == [Holding("r2", 1, 2), Holding("r1", 1, 1), Holding("r0", 1, 0)]
    while mesh.engines["e"].core._running.step is None:
        mesh.step()
    assert held(mesh, "e", *asked) == [Holding("r2", 1, 1), Holding("r1", 1, 0), Holding("r0", 1, None)]
    while "r0" not in mesh.streams:
        mesh.step()
    assert held(mesh, "e", "r0") == [], "it says its tokens"
    mesh.settle()
    assert held(mesh, "e", *asked) == []


def resent(mesh: VirtualMesh, engine: str, offset: int, attempt: int = 1) -> list[Delta]:
    effects = mesh.engines[engine].core.receive(GATEWAY, Probe([ProbeQuestion("r", attempt, offset)]), (), mesh.now)
    said = [effect.message for effect in effects if isinstance(effect, Send)]
    return [delta for message in said if isinstance(message, StepTokens) for delta in message.deltas]


def test_an_engine_says_again_what_it_has_said(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("e")
    mesh.submit("e", make_spec("r", 6, max_tokens=12))
    while len(mesh.streams["r"]) < 5:
        mesh.step()
    answer = continuation(list(range(1, 7)), 12)
    num_said = mesh.engines["e"].core._requests["r"].num_delivered
    assert [(delta.offset, delta.tokens) for delta in resent(mesh, "e", 2)] == [(2, answer[2:num_said])]
    assert resent(mesh, "e", num_said) == [], "nothing is missing"
    assert resent(mesh, "e", 2, attempt=2) == [], "another attempt's"
    mesh.settle()
    [last] = resent(mesh, "e", 7)
    assert (last.offset, last.tokens, last.finish) == (0, answer, FinishReason.LENGTH)
    assert resent(mesh, "e", 7, attempt=2) == resent(mesh, "e", 13) == []


def test_a_new_owner_says_again_what_others_have_said(make_spec: MakeSpec):
    mesh, spec = two_engines(), make_spec("r", 40, max_tokens=40)
    mesh.submit("prefill", spec, decode="decode")
    while len(mesh.streams["r"]) < 9:
        mesh.step()
    [delta] = resent(mesh, "decode", 0)
    assert (delta.offset, delta.tokens, delta.epoch) == (0, continuation(spec.prompt, len(delta.tokens)), Epoch(1, 1))
    assert len(delta.tokens) >= 9
