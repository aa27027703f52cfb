"""What a step comes to for each of its requests: tokens, ends, failures, and who is computed next."""

from collections.abc import Sequence

import pytest

from engines.core import EngineCore
from engines.scheduling.batch import ChunkResult, StepResult, Unsampled
from engines.scheduling.step import Step
from kvtransfer.protocol import Send
from mesh.wire.messages import Message
from mesh.wire.requests import (
    PRIORITY_BATCH,
    Cancel,
    Delta,
    Epoch,
    Failed,
    FailureCode,
    FinishReason,
    Sampling,
    SlicesEnded,
    StepTokens,
    Submit,
    TokenLogprobs,
)
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE

TOKEN = ChunkResult(7)


class Engine:
    """One engine's core, whose steps take no time."""

    def __init__(self, make_spec: MakeSpec) -> None:
        self.core: EngineCore = VirtualMesh().add("e", num_blocks=16, chunk_tokens=64).core
        self._make_spec = make_spec

    def submit(self, name: str, max_tokens: int = 4, slice_tokens: int | None = None, **overrides: object) -> None:
        spec = self._make_spec(name, max_tokens=max_tokens, **overrides)
        self.core.receive(GATEWAY, Submit(spec, Epoch(1), slice_tokens=slice_tokens), (), 0.0)

    def next(self) -> Step | None:
        return self.core.next_step(0.0)[0]

    def step(self, *results: ChunkResult) -> list[Message]:
        """What is said when the next step came to that; by default all its requests draw a token."""
        step = self.next()
        assert step is not None
        return self.finish(step, results)

    def finish(self, step: Step, results: Sequence[ChunkResult] = ()) -> list[Message]:
        chunks = list(results) or [TOKEN] * len(step.shares)
        return said(self.core.finish_step(StepResult(chunks, 0.01), 0.0))

    def fail(self) -> list[Message]:
        return said(self.core.fail_step("it broke", 0.0))


def said(effects: Sequence[object]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def deltas(messages: list[Message]) -> list[Delta]:
    return [delta for message in messages if isinstance(message, StepTokens) for delta in message.deltas]


def members(step: Step | None) -> list[str]:
    assert step is not None
    return [share.request.id for share in step.shares]


@pytest.fixture
def engine(make_spec: MakeSpec) -> Engine:
    return Engine(make_spec)


def test_tokens_of_a_step_go_to_a_gateway_in_one_message(engine: Engine):
    engine.submit("a")
    engine.submit("b")
    [message] = engine.step()
    assert [(delta.request, delta.tokens) for delta in deltas([message])] == [("a", [7]), ("b", [7])]


def test_the_last_token_ends_a_request(engine: Engine):
    engine.submit("a", max_tokens=1)
    [delta] = deltas(engine.step())
    assert delta.finish is FinishReason.LENGTH
    assert engine.core.is_idle


def test_a_request_that_was_cancelled_meanwhile_is_told_nothing(engine: Engine):
    engine.submit("a")
    step = engine.next()
    assert step is not None
    engine.core.receive(GATEWAY, Cancel("a", Epoch(1, 9)), (), 0.0)
    assert engine.core._services[SERVICE].pool.num_held  # the step still writes to them
    assert engine.finish(step) == []
    assert engine.core.is_idle
    assert not engine.core._services[SERVICE].pool.num_held


def test_a_used_up_slice_goes_back_to_its_gateway(engine: Engine):
    engine.submit("a", max_tokens=9, slice_tokens=2)
    engine.step()
    messages = engine.step()
    assert [type(message) for message in messages] == [StepTokens, SlicesEnded]
    assert engine.core.is_idle


def test_what_was_not_sampled_is_computed_again(engine: Engine):
    engine.submit("a")
    assert engine.step(ChunkResult(unsampled=Unsampled("later", None))) == []
    assert [delta.tokens for delta in deltas(engine.step())] == [[7]]


def test_a_request_whose_token_cannot_be_sampled_fails_alone(engine: Engine):
    engine.submit("a")
    engine.submit("b")
    messages = engine.step(ChunkResult(unsampled=Unsampled("no such token", FailureCode.INVALID)), TOKEN)
    [failed] = [message for message in messages if isinstance(message, Failed)]
    assert (failed.request, failed.code) == ("a", FailureCode.INVALID)
    assert [delta.request for delta in deltas(messages)] == ["b"]


def test_of_a_batch_that_fails_the_halves_are_tried_by_themselves(engine: Engine):
    for name in "abc":
        engine.submit(name)
    assert members(engine.next()) == ["a", "b", "c"]
    assert engine.fail() == []
    assert members(engine.next()) == ["a", "b"]
    assert engine.fail() == []
    assert members(engine.next()) == ["a"]
    [failed] = engine.fail()
    assert isinstance(failed, Failed)
    assert (failed.request, failed.code, failed.reason) == ("a", FailureCode.STEP, "it broke")
    engine.step()
    engine.step()
    assert members(engine.next()) == ["b", "c"]


def test_requests_without_promises_join_no_part_of_a_batch_that_failed(engine: Engine):
    """They may be in another part, and would be computed twice."""
    engine.submit("a", max_tokens=9)
    for name in ("line", "other"):
        engine.submit(name, max_tokens=9, priority=PRIORITY_BATCH, slo_ttft_s=86400.0, slo_tpot_s=86400.0)
    while len(members(step := engine.next())) < 3:
        engine.finish(step)
    engine.fail()
    parts = [members(engine.next())]
    engine.fail()
    for _ in range(3):
        parts.append(members(step := engine.next()))
        engine.finish(step)
    assert sorted(map(len, parts)) == [1, 1, 1, 2]
    assert sorted(name for part in parts[1:] for name in part) == ["a", "line", "other"]


def test_a_part_of_a_failed_batch_that_ended_is_passed_over(engine: Engine):
    for name in "ab":
        engine.submit(name)
    engine.next()
    engine.fail()
    engine.core.receive(GATEWAY, Cancel("a", Epoch(1, 9)), (), 0.0)
    assert members(engine.next()) == ["b"]


def test_what_outgrows_the_memory_ends_with_what_it_has(engine: Engine):
    engine.submit("a", max_tokens=500)
    finished: list[Delta] = []
    while not finished:
        step, effects = engine.core.next_step(0.0)
        finished += [delta for delta in deltas(said(effects)) if delta.finish is not None]
        if step is not None:
            engine.finish(step)
    assert finished[0].finish is FinishReason.LENGTH
    assert engine.core.is_idle


def test_a_step_that_was_not_begun_cannot_end(engine: Engine):
    with pytest.raises(RuntimeError, match="not started"):
        engine.core.finish_step(StepResult([TOKEN], 0.01), 0.0)


def test_probabilities_of_a_prompt_are_told_with_the_first_token(engine: Engine):
    engine.submit("a", num_prompt=2, sampling=Sampling(max_tokens=4, seed=1, prompt_logprobs=0))
    found = [None, TokenLogprobs(2, -1.0, [])]
    [delta] = deltas(engine.step(ChunkResult(7, prompt_logprobs=found)))
    assert delta.prompt_logprobs == found
