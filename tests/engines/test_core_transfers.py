"""Requests that are handed over between engine cores, whatever is lost and whoever dies."""

import msgspec
import pytest

from mesh.wire.control import Role
from mesh.wire.messages import Message
from mesh.wire.requests import (
    Cancel,
    Epoch,
    RefusalCode,
)
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Reserved, Taken
from tests.engines.conftest import MakeSpec
from tests.engines.core_pairs import SEEDS, pool, refusals, two_engines
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, continuation
from tests.seeds import each_seed


@each_seed(SEEDS)
def test_many_requests_prefilled_here_and_decoded_there(make_spec: MakeSpec, seed: int):
    mesh = two_engines(seed)
    specs = [make_spec(f"r{index}", 3 + 5 * index, max_tokens=1 + 3 * index, first=index % 3) for index in range(6)]
    for spec in specs:
        mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, spec.sampling.max_tokens)
    assert refusals(mesh) == []


@each_seed(SEEDS)
def test_a_pool_too_small_for_all_preempts_and_still_gives_the_same_tokens(make_spec: MakeSpec, seed: int):
    mesh = VirtualMesh(seed)
    mesh.add("small", num_blocks=9)
    specs = [make_spec(f"r{index}", 6, max_tokens=20, first=100 * index) for index in range(4)]
    for spec in specs:
        mesh.submit("small", spec)
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, 20)
    assert mesh.engines["small"].core.status(0.0).preemptions_total > 0


@each_seed(SEEDS)
@pytest.mark.parametrize("kind", [Blocks, Taken])
def test_lost_blocks_are_computed_again_at_the_destination(make_spec: MakeSpec, seed: int, kind: type):
    lost: list[Message] = []

    def lose(sender: str, to: str, message: Message) -> bool:
        if isinstance(message, kind) and len(lost) < 2:
            lost.append(message)
            return True
        return False

    mesh = two_engines(seed, lose=lose)
    spec = make_spec("r", 40, max_tokens=6)
    mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    assert lost
    if refusals(mesh):  # the sender got stuck, and leaves it to the gateway, which knows the tokens so far
        assert refusals(mesh) == [RefusalCode.TRANSFER_FAILED]
        mesh.submit("decode", msgspec.structs.replace(spec, generated=list(mesh.streams["r"])), attempt=2)
        mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 6)


@each_seed(SEEDS)
@pytest.mark.parametrize("kind", [Reserved, Commit, Committed])
def test_a_lost_word_of_the_handshake_is_answered_with_a_refusal_and_nothing_leaks(
    make_spec: MakeSpec, seed: int, kind: type
):
    mesh = two_engines(seed, lose=lambda sender, to, message: isinstance(message, kind | Abort))
    mesh.submit("prefill", make_spec("r", 20, max_tokens=400), decode="decode")
    mesh.settle()
    if kind is Committed:  # the request lives on at the decode engine; the gateway's stream is whole
        assert mesh.finished == {"r": "length"}
    else:
        assert refusals(mesh) in ([RefusalCode.PEER_SILENT], [RefusalCode.TRANSFER_FAILED])


@each_seed(SEEDS)
def test_an_owner_whose_word_was_lost_says_again_that_it_is_one(make_spec: MakeSpec, seed: int):
    lost: list[Message] = []

    def lose(sender: str, to: str, message: Message) -> bool:
        if isinstance(message, Committed) and len(lost) < 2:
            lost.append(message)
            return True
        return False

    mesh = two_engines(seed, lose=lose)
    spec = make_spec("r", 20, max_tokens=60)
    mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    assert len(lost) == 2
    assert refusals(mesh) == []
    assert mesh.streams["r"] == continuation(spec.prompt, 60)


@each_seed(SEEDS)
@pytest.mark.parametrize("steps", [0, 1, 3, 6, 10, 15, 25])
def test_a_cancelled_request_frees_everything_at_any_moment(make_spec: MakeSpec, seed: int, steps: int):
    mesh = two_engines(seed)
    mesh.submit("prefill", make_spec("r", 30, max_tokens=500), decode="decode")
    for _ in range(steps):
        mesh.step()
    for engine in mesh.engines:
        mesh.deliver(GATEWAY, engine, Cancel("r", Epoch(1, 9)))
    mesh.settle()
    assert "r" not in mesh.finished


@each_seed(SEEDS)
@pytest.mark.parametrize(("victim", "survivor"), [("prefill", "decode"), ("decode", "prefill"), (GATEWAY, "decode")])
@pytest.mark.parametrize("steps", [2, 8, 20])
def test_a_dead_peer_leaves_nothing_behind(make_spec: MakeSpec, seed: int, victim: str, survivor: str, steps: int):
    mesh = two_engines(seed)
    mesh.submit("prefill", make_spec("r", 30, max_tokens=500), decode="decode")
    for _ in range(steps):
        mesh.step()
    if victim == GATEWAY:
        for name, engine in mesh.engines.items():
            mesh.perform(name, engine.core.lose_peer(GATEWAY, mesh.now))
    else:
        mesh.kill(victim)
    mesh.settle()
    assert pool(mesh, survivor).num_held == 0


@each_seed(SEEDS)
@pytest.mark.parametrize("steps", [4, 8, 12, 16, 20])
def test_a_hand_over_that_ends_late_does_not_replace_a_newer_attempt(make_spec: MakeSpec, seed: int, steps: int):
    mesh = two_engines(seed)
    spec = make_spec("r", 30, max_tokens=40)
    mesh.submit("prefill", spec, decode="decode")
    for _ in range(steps):
        mesh.step()
    mesh.submit("decode", spec, attempt=2)
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 40)
    assert mesh.finished_under["r"].attempt == 2


@pytest.mark.parametrize("steps", [2, 8, 20])
def test_a_gateway_that_was_only_silent_hears_that_its_request_ended(make_spec: MakeSpec, steps: int):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r", 30, max_tokens=500), decode="decode")
    for _ in range(steps):
        mesh.step()
    for name, engine in mesh.engines.items():
        mesh.perform(name, engine.core.lose_peer(GATEWAY, mesh.now))
    mesh.settle()
    assert refusals(mesh)
    assert set(refusals(mesh)) <= {RefusalCode.GATEWAY_SILENT, RefusalCode.TRANSFER_FAILED}


def test_the_second_transfer_of_a_prompt_sends_only_what_is_not_there(make_spec: MakeSpec):
    sent: list[Blocks] = []

    def lose(sender: str, to: str, message: Message) -> bool:
        if isinstance(message, Blocks):
            sent.append(message)
        return False

    mesh = two_engines(lose=lose)
    for request in ("first", "second"):
        mesh.submit("prefill", make_spec(request, 18), decode="decode")
        mesh.settle()
    assert sum(message.num_tokens for message in sent if message.transfer.startswith("first")) == 18
    assert sum(message.num_tokens for message in sent if message.transfer.startswith("second")) == 2


def test_a_decode_engine_without_room_declines_and_the_gateway_hears_why(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("prefill", Role.PREFILL)
    mesh.add("decode", num_blocks=4)
    mesh.submit("prefill", make_spec("r", 40), decode="decode")
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.NO_MEMORY]
