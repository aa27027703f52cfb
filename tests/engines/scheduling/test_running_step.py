"""The step that runs: whose it is, how long steps like it may follow, and when their tokens are due."""

from math import inf

import pytest

from engines.core import EngineCore
from engines.scheduling.batch import ChunkResult, StepResult
from engines.scheduling.running_step import RunningStep
from mesh.topology.schema import Scheduling
from mesh.wire.requests import Epoch, Sampling, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE, STEP_S

RESULT = ChunkResult(7)


class Engine:
    """An engine with two services, and the step that it computes."""

    def __init__(self, make_spec: MakeSpec, scheduling: Scheduling = Scheduling.SLO, deliver_every: int = 1) -> None:
        mesh = VirtualMesh()
        mesh.add("e", services=(SERVICE, OTHER), scheduling=scheduling, deliver_every=deliver_every)
        self.core: EngineCore = mesh.engines["e"].core
        self.running: RunningStep = self.core._running
        self._make_spec = make_spec

    def submit(self, name: str, service: str = SERVICE, max_tokens: int = 10) -> None:
        sampling = Sampling(max_tokens=max_tokens, seed=1, ignore_eos=True)
        spec = self._make_spec(name, 4, service=service, sampling=sampling)
        self.core.receive(GATEWAY, Submit(spec, Epoch(1)), (), 0.0)

    def start(self) -> None:
        """The next step runs."""
        step, _ = self.core.next_step(0.0)
        assert step is not None

    def finish(self) -> None:
        assert self.running.step is not None
        self.core.finish_step(StepResult([RESULT] * len(self.running.step.shares), STEP_S), 0.0)


def decoding(make_spec: MakeSpec, *names: str, **options: int) -> Engine:
    """An engine whose step decodes these, each of which has one token."""
    engine = Engine(make_spec, **options)  # type: ignore[arg-type]
    for name in names:
        engine.submit(name)
    engine.start()
    engine.finish()
    engine.start()
    return engine


def test_a_step_computes_its_own_requests(make_spec: MakeSpec):
    engine = decoding(make_spec, "a", "b")
    here = engine.core._services[SERVICE].queue.running
    assert [engine.running.computes(request) for request in here] == [True, True]
    engine.finish()
    assert [engine.running.computes(request) for request in here] == [False, False]


def test_without_a_step_nothing_follows(make_spec: MakeSpec):
    running = Engine(make_spec).running
    assert (running.num_steady_steps(), running.num_steps_to_delivery(), running.steady_until()) == (0, 0, inf)
    with pytest.raises(RuntimeError, match="none runs that repeats"):
        running.pass_steps(1, 7, 0.0)


def test_steps_repeat_until_somebody_comes(make_spec: MakeSpec):
    engine = decoding(make_spec, "a", "b")
    assert engine.running.num_steady_steps() > 0
    engine.submit("c")
    assert engine.running.num_steady_steps() == 0


def test_the_turn_stays_for_ever_only_while_no_other_service_has_any_requests(make_spec: MakeSpec):
    engine = decoding(make_spec, "a")
    assert engine.running.steady_until() == inf
    engine.submit("b", OTHER)
    assert engine.running.steady_until() == -inf


@pytest.mark.parametrize(("deliver_every", "num_steps"), [(1, 1), (4, 4)])
def test_tokens_are_due_when_as_many_are_held_as_are_delivered_at_a_time(
    make_spec: MakeSpec, deliver_every: int, num_steps: int
):
    engine = decoding(make_spec, "a", deliver_every=deliver_every)
    assert engine.running.num_steps_to_delivery() == num_steps


def test_steps_that_are_passed_bring_the_delivery_nearer_and_then_it_comes(make_spec: MakeSpec):
    engine = decoding(make_spec, "a", deliver_every=3)
    running = engine.running
    assert running.pass_steps(2, 7, 2 * STEP_S) == []
    assert running.num_steps_to_delivery() == 1
    (send,) = running.pass_steps(1, 7, 3 * STEP_S)
    assert [delta.tokens for delta in send.message.deltas] == [[7, 7, 7]]  # type: ignore[union-attr]
    assert running.step is not None
    assert running.step.started_at == 3 * STEP_S


@pytest.mark.parametrize(
    ("results", "is_repeated"),
    [([RESULT, RESULT], True), ([RESULT, ChunkResult(8)], False), ([ChunkResult()] * 2, False)],
)
def test_a_step_was_repeated_if_all_drew_the_same_token(
    make_spec: MakeSpec, results: list[ChunkResult], is_repeated: bool
):
    engine = decoding(make_spec, "a", "b")
    assert engine.running.repeated(StepResult(results, STEP_S)) is None  # nobody has asked yet
    engine.running.num_steady_steps()
    found = engine.running.repeated(StepResult(results, STEP_S))
    assert (found is not None) == is_repeated
    if found is not None:
        assert found[1] == 7
