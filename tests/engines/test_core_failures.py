"""Steps that fail: only the guilty request does, and nobody else gets its KV."""

import pytest

from engines.scheduling.batch import Batch, ChunkResult, StepResult, Unsampled
from mesh.wire.requests import (
    Cancel,
    Epoch,
    Failed,
    FailureCode,
)
from tests.engines.conftest import MakeSpec
from tests.engines.core_pairs import pool
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import HashingExecutor, VirtualMemory, continuation


def test_a_step_that_fails_fails_its_requests_only(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e")
    mesh.submit("e", make_spec("bad"))
    engine.core.next_batch(0.0)
    mesh.perform("e", engine.core.fail_step("out of memory", 0.0))
    mesh.submit("e", make_spec("good"))
    mesh.settle()
    assert [type(answer).__name__ for answer in mesh.answers] == ["Accepted", "Failed", "Accepted"]
    assert set(mesh.finished) == {"good"}


class PoisonedError(Exception):
    """A batch that cannot be computed."""


class PoisonedExecutor(HashingExecutor):
    """Fails every batch with one of these requests in it."""

    def __init__(self, memory: VirtualMemory, *poison: str) -> None:
        super().__init__(memory)
        self.poison = poison
        self.num_failures = 0

    def execute(self, batch: Batch) -> StepResult:
        if any(chunk.request in self.poison for chunk in batch.chunks):
            self.num_failures += 1
            raise PoisonedError
        return super().execute(batch)


def settle_poisoned(mesh: VirtualMesh) -> None:
    while True:
        try:
            mesh.settle()
        except PoisonedError:
            mesh.perform("e", mesh.engines["e"].core.fail_step("poisoned", mesh.now))
        else:
            return


@pytest.mark.parametrize("poison", [("r3",), ("r0", "r6"), ()])
def test_a_step_that_fails_fails_the_guilty_request_only(make_spec: MakeSpec, poison: tuple[str, ...]):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=64)
    engine.executor = executor = PoisonedExecutor(engine.memory)
    requests = [make_spec(f"r{index}", 5 + index, max_tokens=12) for index in range(7)]
    for spec in requests:
        mesh.submit("e", spec)
    while len(mesh.streams) < 7:
        mesh.step()
    executor.poison = poison
    settle_poisoned(mesh)
    failed = [answer.request for answer in mesh.answers if isinstance(answer, Failed)]
    assert sorted(failed) == sorted(poison)
    for spec in requests:
        if spec.id not in poison:
            assert mesh.streams[spec.id] == continuation(spec.prompt, 12)
    assert executor.num_failures <= 7, "a batch of seven is halved three times for each"


def test_what_ends_while_its_step_is_tried_again_is_not_computed(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=64)
    engine.executor = executor = PoisonedExecutor(engine.memory)
    for index in range(4):
        mesh.submit("e", make_spec(f"r{index}", 5, max_tokens=12))
    while len(mesh.streams) < 4:
        mesh.step()
    executor.poison = ("r1",)
    with pytest.raises(PoisonedError):
        mesh.settle()
    mesh.perform("e", engine.core.fail_step("poisoned", mesh.now))
    for request in ("r0", "r1"):
        mesh.deliver("gateway", "e", Cancel(request, Epoch(1)))
    settle_poisoned(mesh)
    assert set(mesh.finished) == {"r2", "r3"}
    assert executor.num_failures == 1


class UndrawingExecutor(HashingExecutor):
    """Samples no token for some requests: ``why`` says for how many of their next draws, and why not."""

    def __init__(self, memory: VirtualMemory, why: dict[str, list[Unsampled]]) -> None:
        super().__init__(memory)
        self.why = why

    def execute(self, batch: Batch) -> StepResult:
        result = super().execute(batch)
        chunks = [
            ChunkResult(unsampled=self.why[chunk.request].pop(0))
            if chunk.draw and self.why.get(chunk.request)
            else given
            for chunk, given in zip(batch.chunks, result.chunks, strict=True)
        ]
        return StepResult(chunks, result.elapsed_s)


def test_a_request_whose_mask_is_late_is_computed_again_and_answers_alike(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=4)
    engine.executor = UndrawingExecutor(engine.memory, {"r1": [Unsampled()] * 5, "r2": [Unsampled()]})
    requests = [make_spec(f"r{index}", 5 + index, max_tokens=12) for index in range(4)]
    for spec in requests:
        mesh.submit("e", spec)
    mesh.settle()
    for spec in requests:
        assert mesh.streams[spec.id] == continuation(spec.prompt, 12)


@pytest.mark.parametrize("num_sampled", [0, 3])
def test_a_request_that_nothing_can_be_sampled_for_fails_alone(make_spec: MakeSpec, num_sampled: int):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=64)
    requests = [make_spec(f"r{index}", 5 + index, max_tokens=12) for index in range(4)]
    for spec in requests:
        mesh.submit("e", spec)
    while num_sampled and len(mesh.streams["r2"]) < num_sampled:
        mesh.step()
    engine.executor = UndrawingExecutor(engine.memory, {"r2": [Unsampled("too dear", FailureCode.GRAMMAR)]})
    mesh.settle()
    [failed] = [answer for answer in mesh.answers if isinstance(answer, Failed)]
    assert (failed.request, failed.reason, failed.code) == ("r2", "too dear", FailureCode.GRAMMAR)
    assert all(mesh.streams[spec.id] == continuation(spec.prompt, 12) for spec in requests if spec.id != "r2")
    assert engine.core.is_idle


def test_kv_that_gave_no_number_is_given_to_nobody_else(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", num_blocks=64, chunk_tokens=4)
    engine.executor = UndrawingExecutor(engine.memory, {"bad": [Unsampled("not a number", FailureCode.STEP)]})
    mesh.submit("e", make_spec("bad", 20))
    mesh.settle()
    assert [answer.code for answer in mesh.answers if isinstance(answer, Failed)] == [FailureCode.STEP]
    assert pool(mesh, "e").match(list(range(1, 21)), 20) == []
