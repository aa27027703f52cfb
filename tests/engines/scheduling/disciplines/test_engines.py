"""Engines with each discipline under random loads: every request is answered rightly, one service and phase a step."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from engines.core import EngineCore
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.scheduling.batch import Batch
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from kvtransfer.protocol import Send, TransferLimits
from mesh.topology.schema import Rescheduling, Scheduling
from mesh.wire.control import Role
from mesh.wire.requests import Cancel, Epoch, Refused, RequestSpec, Sampling, StepTokens, Submit
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SHAPE, HashingExecutor, VirtualContent, VirtualMemory, continuation
from tests.seeds import each_seed

SEEDS = 1
COSTS = {"small": 1.0, "large": 4.0}
SLOTS = {"small": 3, "large": 1}  # blocks in a page
RANKING = (Scheduling.DB, Scheduling.FCFS, Scheduling.SJF, Scheduling.MLFQ)
PURE = (*RANKING, Scheduling.ROUND_ROBIN)  # one phase a step
ALL = [(scheduling, False) for scheduling in Scheduling] + [(scheduling, True) for scheduling in RANKING]


def engine(scheduling: Scheduling, role: Role, *, is_strict: bool, num_pages: int = 30) -> EngineCore:
    memory = VirtualMemory(num_pages, SLOTS)
    services = {
        name: Service(
            ServiceQueue(name, memory.pool(name)),
            SHAPE,
            None,
            frozenset(),
            4096,
            LearntCost(StepCost(PrefillCost(0.0, 0.001 * factor), DecodeCost(0.005 * factor, 0.001 * factor))),
        )
        for name, factor in COSTS.items()
    }
    settings = EngineSettings(
        "e",
        "here",
        1,
        role,
        Limits(6, 24),
        1000,
        "auto",
        5.0,
        TransferLimits(),
        scheduling=scheduling,
        starvation_s=1.0,
        strict_phases=is_strict,
    )
    return EngineCore(settings, services, lambda peer, ref: True)


@dataclass
class Run:
    """Requests come at random, some are cancelled; the executor's tokens depend on the KV."""

    core: EngineCore
    seed: int
    num_requests: int = 24
    now: float = 0.0
    batches: list[Batch] = field(default_factory=list)
    streams: dict[str, list[int]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        content = self.core._services["small"].pool._content
        assert isinstance(content, VirtualContent)
        self._executor = HashingExecutor(content.memory)
        self.specs = list(self._specs())
        self._serve()

    def _specs(self) -> Iterator[RequestSpec]:
        draw = self._random
        for index in range(self.num_requests):
            prompt = [draw.randrange(50) for _ in range(draw.randint(1, 60))]
            sampling = Sampling(max_tokens=draw.randint(1, 30), seed=1, ignore_eos=True)
            priority = draw.choice((0, 0, 0, 1))
            yield RequestSpec(f"r{index}", GATEWAY, draw.choice(list(COSTS)), prompt, sampling, 1.0, 0.1, priority)

    def _serve(self) -> None:
        waiting = list(self.specs)
        while waiting or not self.core.is_idle:
            if waiting and (self.core.is_idle or self._random.random() < 0.3):
                self._hear(self.core.receive(GATEWAY, Submit(waiting.pop(0), Epoch(1)), (), self.now))
            if self._random.random() < 0.02 and self.streams:
                name = self._random.choice(sorted(self.streams))
                self._hear(self.core.receive(GATEWAY, Cancel(name, Epoch(1, 9)), (), self.now))
                self.cancelled |= {name} - self.finished
            self._step()

    def _step(self) -> None:
        batch, effects = self.core.next_batch(self.now)
        self._hear(effects)
        if batch is None:
            assert effects or self.core.is_idle, f"it has something to do, and does nothing: {self.core}"
            return
        self.batches.append(batch)
        result = self._executor.execute(batch)
        self.now += result.elapsed_s
        self._hear(self.core.finish_step(result, self.now))

    def _hear(self, effects: list[object]) -> None:
        self.core.check_invariants()
        for effect in effects:
            assert isinstance(effect, Send)
            assert not isinstance(effect.message, Refused)
            for delta in effect.message.deltas if isinstance(effect.message, StepTokens) else ():
                self.streams.setdefault(delta.request, []).extend(delta.tokens)
                self.finished |= {delta.request} if delta.finish is not None else set()


@cache
def run_of(scheduling: Scheduling, role: Role, seed: int, *, is_strict: bool) -> Run:
    return Run(engine(scheduling, role, is_strict=is_strict), seed)


@each_seed(SEEDS)
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(("scheduling", "is_strict"), ALL)
def test_every_request_gets_its_tokens(scheduling: Scheduling, is_strict: bool, role: Role, seed: int):
    run = run_of(scheduling, role, seed, is_strict=is_strict)
    for spec in run.specs:
        right = continuation(spec.prompt, spec.sampling.max_tokens)
        if spec.id in run.cancelled:
            assert run.streams[spec.id] == right[: len(run.streams[spec.id])]
        else:
            assert spec.id in run.finished
            assert run.streams[spec.id] == right


@pytest.mark.parametrize("scheduling", RANKING)
def test_these_loads_fill_the_pool(scheduling: Scheduling):
    """Else they would not show what preemption does. The bound holds for the seeds that were tried."""
    runs = [run_of(scheduling, Role.MULTIPLEX, seed, is_strict=False) for seed in range(3)]
    assert sum(run.core.status(run.now).preemptions_total for run in runs) > 5


@each_seed(SEEDS)
@pytest.mark.parametrize("scheduling", PURE)
def test_a_step_is_of_one_phase(scheduling: Scheduling, seed: int):
    """A decode is one token, sampled earlier; blocks for all, so that none is cached and computed anew."""
    run = Run(engine(scheduling, Role.MULTIPLEX, is_strict=False, num_pages=400), seed)
    for batch in run.batches:
        decodes = [chunk.draw is not None and chunk.draw.num_generated > 0 for chunk in batch.chunks]
        assert all(decodes) or not any(decodes)


@pytest.mark.parametrize(("scheduling", "is_strict"), ALL)
def test_the_same_load_is_served_the_same_way(scheduling: Scheduling, is_strict: bool):
    again = Run(engine(scheduling, Role.MULTIPLEX, is_strict=is_strict), 1)
    assert again.batches == run_of(scheduling, Role.MULTIPLEX, 1, is_strict=is_strict).batches


@each_seed(6)
@pytest.mark.parametrize("scheduling", PURE)
def test_requests_that_are_handed_over_end_where_they_decode(make_spec: MakeSpec, scheduling: Scheduling, seed: int):
    mesh = VirtualMesh(seed)
    mesh.add("prefill", Role.PREFILL, scheduling=scheduling)
    mesh.add("decode", Role.DECODE, scheduling=scheduling)
    specs = [make_spec(f"r{index}", 3 + 5 * index, max_tokens=1 + 3 * index, first=index % 3) for index in range(6)]
    for spec in specs:
        mesh.submit("prefill", spec, decode="decode")
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, spec.sampling.max_tokens)


@each_seed(range(8))
def test_requests_that_migrate_are_known_where_they_are(make_spec: MakeSpec, seed: int):
    mesh = VirtualMesh(seed)
    for name in ("a", "b"):
        mesh.add(name, num_blocks=24, rescheduling=Rescheduling(), scheduling=Scheduling.DB)
    specs = [make_spec(f"r{index}", 6, max_tokens=40, first=10 * index) for index in range(6)]
    for spec in specs:
        mesh.submit("a", spec)
    for _ in range(60):
        mesh.step()
    mesh.perform("a", mesh.engines["a"].core.drain(mesh.now))
    mesh.settle()
    assert all(mesh.streams[spec.id] == continuation(spec.prompt, 40)[: len(mesh.streams[spec.id])] for spec in specs)


def test_a_request_that_ranks_first_runs_before_one_that_came_earlier():
    """Of the two services the one whose requests cost a quarter."""
    core = engine(Scheduling.DB, Role.MULTIPLEX, is_strict=True)
    for name in ("large", "small"):
        sampling = Sampling(max_tokens=3, seed=1, ignore_eos=True)
        core.receive(GATEWAY, Submit(RequestSpec(name, GATEWAY, name, [1] * 8, sampling, 1.0, 0.1), Epoch(1)), (), 0.0)
    batch, _ = core.next_batch(0.0)
    assert batch is not None
    assert batch.service == "small"
