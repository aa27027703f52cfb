"""Passing by decode steps that repeat leaves an engine as if it had taken them one by one."""

from collections.abc import Iterable
from random import Random

import msgspec
import pytest

from engines.core import EngineCore
from engines.costs.step_cost import StepLoad, load_of
from engines.effects import Effect
from engines.scheduling.batch import Batch, ChunkResult, StepResult
from kvtransfer.protocol import Send
from mesh.wire.requests import Cancel, Epoch, StepTokens, Submit
from mesh.wire.status import EngineStatus
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE
from tests.seeds import each_seed

TOKEN = 7
HELD = 256


def new_core(num_blocks: int = 64, deliver_every: int = HELD) -> EngineCore:
    return VirtualMesh().add("only", num_blocks=num_blocks, deliver_every=deliver_every).core


def submit(core: EngineCore, make_spec: MakeSpec, max_tokens: int, num_prompt: int = 6, id_: str = "r") -> None:
    spec = make_spec(id_, num_prompt, max_tokens=max_tokens)
    sampling = msgspec.structs.replace(spec.sampling, ignore_eos=True)
    spec = msgspec.structs.replace(spec, cache_salt=id_, sampling=sampling)
    core.receive(GATEWAY, Submit(spec, Epoch(1)), (), 0.0)


def start(core: EngineCore, now: float) -> Batch:
    batch, _ = core.next_batch(now)
    assert batch is not None
    return batch


def finish(core: EngineCore, batch: Batch, now: float) -> list[tuple[int, int]]:
    """Offset and number of the tokens that are delivered."""
    results = [ChunkResult(None if chunk.draw is None else TOKEN) for chunk in batch.chunks]
    return delivered(core.finish_step(StepResult(results, 0.0), now))


def delivered(effects: Iterable[Effect]) -> list[tuple[int, int]]:
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [
        (delta.offset, len(delta.tokens))
        for message in messages
        if isinstance(message, StepTokens)
        for delta in message.deltas
    ]


def decoding(make_spec: MakeSpec, max_tokens: int = 30) -> EngineCore:
    """Two requests that have delivered their first tokens, and a step of both that runs."""
    core = new_core()
    for id_ in ("a", "b"):
        submit(core, make_spec, max_tokens, id_=id_)
    while core.num_steady_steps() == 0:
        batch = start(core, 0.0)
        if core.num_steady_steps() == 0:
            finish(core, batch, 0.0)
    return core


def without_pace(core: EngineCore, now: float = 1.0) -> EngineStatus:
    """In these tests, time passes for no step alone."""
    return msgspec.structs.replace(core.status(now), seq=0, pace_s=0.0)


def test_passed_steps_leave_what_steps_leave(make_spec: MakeSpec):
    passed, stepped = decoding(make_spec), decoding(make_spec)
    num_steps = passed.num_steady_steps()
    passed.pass_steps(num_steps, TOKEN, 1.0)
    batch = Batch(SERVICE, [request.chunk(1) for request in stepped._requests.values()])
    for _ in range(num_steps):
        finish(stepped, batch, 1.0)
        batch = start(stepped, 1.0)
    assert without_pace(passed) == without_pace(stepped)
    last = Batch(SERVICE, [request.chunk(1) for request in passed._requests.values()])
    delivered, one_by_one = finish(passed, last, 1.1), finish(stepped, batch, 1.1)
    assert delivered == one_by_one
    assert {offset + count for offset, count in delivered} == {30}
    passed.check_invariants()


@each_seed(range(20))
def test_what_is_said_between_them_is_what_steps_make_true(make_spec: MakeSpec, seed: int):
    random = Random(seed)
    deliver_every = random.choice([1, 7, HELD])
    passed, stepped = new_core(400, deliver_every), new_core(400, deliver_every)
    for number in range(random.randint(1, 5)):
        num_prompt, max_tokens, promise_s = random.randint(1, 40), random.randint(3, 90), random.choice([0.05, 0.1])
        spec = make_spec(str(number), num_prompt, max_tokens=max_tokens)
        sampling = msgspec.structs.replace(spec.sampling, ignore_eos=True)
        spec = msgspec.structs.replace(
            spec, sampling=sampling, slo_tpot_s=promise_s, priority=int(random.random() < 0.1)
        )
        for core in (passed, stepped):
            core.receive(GATEWAY, Submit(spec, Epoch(1)), (), 0.01 * number)
    now = 1.0
    while (batch := passed.next_batch(now)[0]) is not None:
        same, _ = stepped.next_batch(now)
        while left := min(passed.num_steady_steps(), passed.num_steps_to_delivery()):
            num_steps = random.randint(1, left)
            now += 0.01 * num_steps
            told = delivered(passed.pass_steps(num_steps, TOKEN, now))
            told_by_steps = []
            for _ in range(num_steps):
                told_by_steps += finish(stepped, same, now)
                same = start(stepped, now)
            assert told == told_by_steps
            assert without_pace(passed, now) == without_pace(stepped, now)
            if random.random() < 0.2:
                break  # somebody comes, for all that is known here
        now += 0.01
        assert finish(passed, batch, now) == finish(stepped, same, now)
        assert without_pace(passed, now) == without_pace(stepped, now)
        assert held(passed) == held(stepped)
    assert passed.is_idle
    assert stepped.is_idle


def test_a_step_is_as_much_work_as_its_batch(make_spec: MakeSpec):
    core, num_passed = new_core(400), 0
    for number, num_prompt in enumerate((3, 70, 17)):
        submit(core, make_spec, 20 + number, num_prompt, str(number))
    while (step := core.next_step(0.0)[0]) is not None:
        assert loads_alike(core.load(step), step.load(), load_of(step.batch()))
        if core.num_steady_steps() > 1:
            core.pass_steps(2, TOKEN, 0.0)
            load, num_passed = core.load(step), num_passed + 2
            core.check_invariants()  # which books them
            assert loads_alike(load, step.load(), load_of(step.batch()))
        finish(core, step.batch(), 0.0)
    assert num_passed


def loads_alike(*loads: StepLoad) -> bool:
    first, *others = [load._replace(chunks=list(load.chunks)) for load in loads]
    return others == [first] * len(others)


def held(core: EngineCore) -> list[tuple[int, int, int, int]]:
    """Of each request: tokens, those computed, blocks, and those that others can find."""
    return [
        (len(one.tokens), one.num_computed, len(one.blocks), len(one.published.blocks) if one.published else 0)
        for one in core._requests.values()
    ]


def test_who_is_cancelled_between_them_has_its_tokens(make_spec: MakeSpec):
    core = decoding(make_spec)
    [first, second] = core._requests.values()
    before = first.num_generated, second.num_generated
    core.pass_steps(1, TOKEN, 1.0)
    core.pass_steps(2, TOKEN, 1.0)
    core.receive(GATEWAY, Cancel(first.id, first.epoch), (), 1.0)
    assert (first.num_generated - 3, second.num_generated - 3) == before
    assert core.num_steady_steps() == 0
    core.check_invariants()


def test_some_can_be_passed_and_then_more(make_spec: MakeSpec):
    core = decoding(make_spec)
    num_steps = core.num_steady_steps()
    core.pass_steps(3, TOKEN, 1.0)
    assert core.num_steady_steps() == num_steps - 3
    core.check_invariants()


def test_nothing_is_passed_when_somebody_waits_or_is_over(make_spec: MakeSpec):
    core = decoding(make_spec)
    submit(core, make_spec, 5, id_="late")
    assert core.num_steady_steps() == 0
    other = decoding(make_spec)
    other.lose_peer(GATEWAY, 1.0)
    assert other.num_steady_steps() == 0


def test_nothing_is_passed_that_the_pool_cannot_hold(make_spec: MakeSpec):
    core = new_core(num_blocks=4)  # 16 tokens
    submit(core, make_spec, max_tokens=40)
    finish(core, start(core, 0.0), 0.0)
    start(core, 0.0)
    assert core.num_steady_steps() == 9  # of 6 tokens of the prompt, one drawn, and those of 9 steps, all fit
    core.pass_steps(9, TOKEN, 1.0)
    assert core.num_steady_steps() == 0
    core.check_invariants()


def test_steps_are_passed_while_those_that_wait_have_no_place(make_spec: MakeSpec):
    core = VirtualMesh().add("only", num_blocks=64, deliver_every=HELD, max_running=1).core
    submit(core, make_spec, 30, id_="runs")
    finish(core, start(core, 0.0), 0.0)
    start(core, 0.0)
    alone = core.num_steady_steps()
    submit(core, make_spec, 30, id_="waits")
    assert core.num_steady_steps() == alone > 0


def test_steps_are_passed_while_those_that_wait_have_no_memory(make_spec: MakeSpec):
    core = new_core(num_blocks=8)  # 32 tokens
    submit(core, make_spec, 20, id_="runs")
    finish(core, start(core, 0.0), 0.0)
    start(core, 0.0)
    submit(core, make_spec, 2, num_prompt=27, id_="waits")
    assert core.num_steady_steps() > 0
    submit(core, make_spec, 2, num_prompt=3, id_="small")
    assert core.num_steady_steps() == 0


def test_a_prefill_is_not_passed(make_spec: MakeSpec):
    core = new_core()
    submit(core, make_spec, max_tokens=40)
    start(core, 0.0)
    assert core.num_steady_steps() == 0


def test_tokens_are_not_held_back_for_long(make_spec: MakeSpec):
    core = new_core(num_blocks=400)
    submit(core, make_spec, max_tokens=1000)
    assert finish(core, start(core, 0.0), 0.0) == [(0, 1)]
    batch = start(core, 0.0)
    assert core.num_steps_to_delivery() == HELD
    assert delivered(core.pass_steps(HELD - 1, TOKEN, 1.0)) == []
    assert core.num_steps_to_delivery() == 1
    assert delivered(core.pass_steps(1, TOKEN, 1.0)) == [(1, HELD)]
    assert core.num_steps_to_delivery() == HELD
    assert finish(core, batch, 1.1) == []


def test_an_engine_that_holds_no_tokens_back_delivers_each(make_spec: MakeSpec):
    core = new_core(deliver_every=1)
    submit(core, make_spec, max_tokens=40)
    assert finish(core, start(core, 0.0), 0.0) == [(0, 1)]
    start(core, 0.0)
    for number in range(1, 6):
        assert core.num_steps_to_delivery() == 1
        assert delivered(core.pass_steps(1, TOKEN, 1.0)) == [(number, 1)]


def test_there_must_be_a_step_to_pass():
    core = new_core()
    assert core.num_steady_steps() == 0
    with pytest.raises(RuntimeError, match="none runs"):
        core.pass_steps(1, TOKEN, 0.0)
