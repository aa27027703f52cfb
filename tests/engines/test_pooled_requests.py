"""Requests for vectors: prompts without answers, from acceptance to the vector, among those that generate."""

from engines.admission.validity import fault_of
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits, LocalScheduler
from kvtransfer.protocol import Send
from mesh.topology.schema import Scheduling
from mesh.wire.control import PrefillMode, Role
from mesh.wire.requests import (
    POOLED_TOKEN,
    Delta,
    Epoch,
    Failed,
    FailureCode,
    FinishReason,
    Pooling,
    Probe,
    ProbeQuestion,
    Sampling,
    StepTokens,
)
from tests.engines.conftest import MakeSequence, MakeSpec
from tests.engines.scheduling.test_scheduler import OneSecondAToken, queue, taken
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE, absorb, continuation

POOLED = {"sampling": Sampling(max_tokens=1, seed=0, ignore_eos=True), "pooling": Pooling()}


def hash_of(prompt: list[int]) -> bytes:
    state = b""
    for token in prompt:
        state = absorb(state, token)
    return state


def pooling_engine(mesh: VirtualMesh, role: Role = Role.MULTIPLEX, *, whole: bool = True) -> VirtualEngine:
    engine = mesh.add("e", role)
    service = engine.core._services[SERVICE]
    service.pools, service.whole_prompts = True, whole
    return engine


def test_a_prompt_comes_to_one_vector_and_leaves_nothing(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = pooling_engine(mesh)
    specs = [make_spec(f"r{number}", 3 + number, first=number, **POOLED) for number in range(16)]
    for spec in specs:
        mesh.submit("e", spec)
    mesh.settle()
    assert mesh.vectors == {spec.id: hash_of(spec.prompt) for spec in specs}
    assert set(mesh.finished.values()) == {FinishReason.LENGTH}
    assert engine.core.is_idle
    engine.core.check_invariants()


def test_prompts_that_are_not_whole_come_in_chunks(make_spec: MakeSpec):
    mesh = VirtualMesh()
    pooling_engine(mesh, whole=False)
    mesh.submit("e", spec := make_spec("r", 100, **POOLED))
    mesh.settle()
    assert mesh.vectors == {"r": hash_of(spec.prompt)}


def test_a_vector_that_was_lost_is_told_again(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = pooling_engine(mesh)
    mesh.submit("e", spec := make_spec("r", **POOLED))
    mesh.settle()
    [effect] = engine.core.receive(GATEWAY, Probe([ProbeQuestion("r", 1, 0)]), (), mesh.now)
    vector = hash_of(spec.prompt)
    assert effect == Send(
        GATEWAY,
        StepTokens([Delta("r", Epoch(1), 0, [POOLED_TOKEN], FinishReason.LENGTH, vector=vector)]),
    )


def test_who_asks_for_what_the_service_does_not_make_is_told_so(make_spec: MakeSpec):
    mesh = VirtualMesh()
    pooling_engine(mesh)
    mesh.submit("e", make_spec("r"))
    mesh.settle()
    reason = "the service makes vectors, and no tokens"
    assert mesh.answers == [Failed("r", Epoch(1), reason, FailureCode.INVALID)]
    other = VirtualMesh()
    other.add("e")
    other.submit("e", make_spec("r", **POOLED))
    other.settle()
    assert other.answers == [Failed("r", Epoch(1), "the service makes no vectors", FailureCode.INVALID)]


def test_a_prompt_may_fill_the_context(make_spec: MakeSpec):
    mesh = VirtualMesh()
    service = pooling_engine(mesh).core._services[SERVICE]
    service.context_limit = 64
    assert fault_of(make_spec("r", 64, **POOLED), service) is None
    assert fault_of(make_spec("r", 65, **POOLED), service) == "65 tokens exceed a context of 64"


def whole(make_sequence: MakeSequence, name: str, num_prompt: int, first: int = 1):
    request = make_sequence(name, num_prompt, first=first, **POOLED)
    request.is_whole = True
    return request


def plan(work: ServiceQueue, role: Role = Role.MULTIPLEX) -> list[tuple[str, int]]:
    return taken(LocalScheduler(Limits(8, 16), OneSecondAToken()).plan(work, role, 0.0))


def test_an_iteration_takes_as_many_whole_prompts_as_fit(make_sequence: MakeSequence):
    prompts = [whole(make_sequence, name, size) for name, size in (("a", 5), ("b", 6), ("c", 7), ("d", 8))]
    assert plan(queue(16, *prompts)) == [("a", 5), ("b", 6)]


def test_prefill_engines_batch_what_nothing_follows(make_sequence: MakeSequence):
    prompts = [whole(make_sequence, name, 5) for name in ("a", "b", "c", "d")]
    assert plan(queue(16, *prompts), Role.PREFILL) == [("a", 5), ("b", 5), ("c", 5)]


def test_a_prompt_longer_than_a_chunk_has_an_iteration_of_its_own(make_sequence: MakeSequence):
    work = queue(16, whole(make_sequence, "short", 5), whole(make_sequence, "long", 30))
    scheduler = LocalScheduler(Limits(8, 16), OneSecondAToken())
    first = scheduler.plan(work, Role.MULTIPLEX, 0.0)
    assert taken(first) == [("short", 5)]
    for share in first.shares:
        work.remove(share.request)
    assert taken(scheduler.plan(work, Role.MULTIPLEX, 0.0)) == [("long", 30)]


def test_alike_prompts_share_no_blocks(make_sequence: MakeSequence):
    one, other = whole(make_sequence, "one", 8), whole(make_sequence, "other", 8)
    work = queue(16, one)
    plan(work)
    one.advance(8, work.pool)
    work.remove(one)
    work.waiting.append(other)
    assert plan(work) == [("other", 8)]
    assert not set(one.blocks) & set(other.blocks)


def test_slack_is_not_waited_for_by_what_cannot_be_cut(make_spec: MakeSpec):
    mesh = VirtualMesh()
    pooling_engine(mesh)
    mesh.submit("e", make_spec("r", 40, **POOLED), prefill=PrefillMode.FORESEEN)
    mesh.settle()
    assert "r" in mesh.vectors


def test_every_discipline_computes_them(make_spec: MakeSpec):
    for scheduling in Scheduling:
        if scheduling.is_static:
            continue
        mesh = VirtualMesh()
        engine = mesh.add("e", scheduling=scheduling)
        service = engine.core._services[SERVICE]
        service.pools = service.whole_prompts = True
        specs = [make_spec(f"r{number}", 20 + number, first=number, **POOLED) for number in range(16)]
        for spec in specs:
            mesh.submit("e", spec)
        mesh.settle()
        assert len(mesh.vectors) == len(specs), scheduling


def test_a_chat_beside_them_goes_on(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", services=(SERVICE, OTHER))
    service = engine.core._services[OTHER]
    service.pools = service.whole_prompts = True
    chat = make_spec("chat", 12, max_tokens=30)
    mesh.submit("e", chat)
    for number in range(10):
        mesh.submit("e", make_spec(f"r{number}", 30, first=number, service=OTHER, **POOLED))
    mesh.settle()
    assert mesh.streams["chat"] == continuation(chat.prompt, 30)
    assert len(mesh.vectors) == 10
