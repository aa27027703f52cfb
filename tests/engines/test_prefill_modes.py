"""How prompts share iterations with decodes, over whole runs of one engine whose predictions are exact."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import ceil
from random import Random

import pytest

from engines.core import EngineCore
from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost, load_of
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.batch import Batch, ChunkResult, StepResult
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Limits
from engines.scheduling.service import Service
from engines.scheduling.slack import LONGEST_GAP
from engines.settings import EngineSettings
from kvtransfer.protocol import Send, TransferLimits
from mesh.wire.control import PrefillMode, Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling, StepTokens, Submit
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE, SHAPE
from tests.seeds import each_seed

COST = StepCost(PrefillCost(0.0, 0.001), DecodeCost(0.005, 0.001))  # of engines in a `VirtualMesh`
MAX_RUNNING, CHUNK_TOKENS, MIN_CHUNK = 8, 128, 32
LONGEST_STEP_S = 0.005 + 0.001 * MAX_RUNNING
TPOT_S = 0.02
SEEDS = 5


@dataclass(frozen=True)
class Iteration:
    """``wanted``: whether a prompt was there to be computed."""

    num_decodes: int
    num_prompts: int
    num_prompt_tokens: int
    wanted: bool

    @property
    def is_full(self) -> bool:
        return self.num_decodes >= MAX_RUNNING


@dataclass
class Run:
    """Requests come at given times; ``token_times`` tells when tokens came."""

    submits: list[tuple[float, Submit]]
    now: float = 0.0
    iterations: list[Iteration] = field(default_factory=list)
    token_times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        mesh = VirtualMesh()
        core = mesh.add("only", num_blocks=1500, max_running=MAX_RUNNING, chunk_tokens=CHUNK_TOKENS).core
        while self.submits or not core.is_idle:
            self._submit_what_came(core)
            batch, _ = core.next_batch(self.now)
            if batch is None:
                self.now = self.submits[0][0]
                continue
            self.iterations.append(_iteration(core, batch))
            self._compute(core, batch)
            core.check_invariants()

    def _submit_what_came(self, core: EngineCore) -> None:
        while self.submits and self.submits[0][0] <= self.now:
            core.receive(GATEWAY, self.submits.pop(0)[1], (), self.now)

    def _compute(self, core: EngineCore, batch: Batch) -> None:
        elapsed_s = COST.elapsed_s(batch)
        self.now += elapsed_s
        results = [ChunkResult(None if chunk.draw is None else 7) for chunk in batch.chunks]
        for effect in core.finish_step(StepResult(results, elapsed_s), self.now):
            if isinstance(effect, Send) and isinstance(effect.message, StepTokens):
                for delta in effect.message.deltas:
                    self.token_times[delta.request] += [self.now] * len(delta.tokens)


def _iteration(core: EngineCore, batch: Batch) -> Iteration:
    queue, load = core._services[SERVICE].queue, load_of(batch)
    wanted = bool(queue.waiting) or any(not request.is_decoding for request in queue.running)
    return Iteration(load.num_decodes, len(load.chunks), sum(new for new, _ in load.chunks), wanted)


def requests(seed: int, mode: PrefillMode, ttft_s: float = 1e6) -> list[tuple[float, Submit]]:
    """Bursts and lulls, prompts and answers of all lengths."""
    random, now = Random(seed), 0.0
    submits = []
    for number in range(30):
        now += random.choice([0.0, 0.0, random.expovariate(5)])
        prompt = [random.randrange(1000) for _ in range(random.choice([1, 20, 100, random.randint(1, 500)]))]
        sampling = Sampling(max_tokens=random.choice([1, 2, random.randint(1, 80)]), seed=1, ignore_eos=True)
        lengths = (sampling.max_tokens,)  # are known
        spec = RequestSpec(
            f"r{number}", GATEWAY, SERVICE, prompt, sampling, ttft_s, TPOT_S, expected=lengths, at_least=lengths
        )
        submits.append((now, Submit(spec, Epoch(1), prefill=mode)))
    return submits


@pytest.mark.parametrize("mode", PrefillMode)
def test_every_request_gets_all_its_tokens(mode: PrefillMode):
    submits = requests(0, mode)
    wanted = {submit.spec.id: submit.spec.sampling.max_tokens for _, submit in submits}
    run = Run(submits)
    assert {request: len(times) for request, times in run.token_times.items()} == wanted


@cache
def in_slack(seed: int) -> Run:
    return Run(requests(seed, PrefillMode.SLACK))


@each_seed(SEEDS)
def test_prefills_in_slack_break_no_promise(seed: int):
    run = in_slack(seed)
    for times in run.token_times.values():
        late_s = [time - (times[0] + index * TPOT_S) for index, time in enumerate(times)]
        assert max(late_s) <= 1e-9


@each_seed(SEEDS)
def test_prefills_in_slack_wait_no_longer_than_slack_takes_to_accrue(seed: int):
    run = in_slack(seed)
    longest_s = 0.001 * (MIN_CHUNK + MAX_RUNNING)
    most_waits = ceil((longest_s - 0.005) / 0.9 / (TPOT_S - LONGEST_STEP_S))
    num_waits = 0
    for iteration in run.iterations:
        waits = iteration.wanted and not iteration.num_prompts and not iteration.is_full
        num_waits = num_waits + 1 if waits else 0
        assert num_waits <= most_waits


@each_seed(SEEDS)
def test_prefills_in_foreseen_slack_come_one_by_one_and_hold_decodes_up_for_a_bounded_time(seed: int):
    """Who comes is up to the gateway, which foresees how much longer steps will be."""
    run = Run(requests(seed, PrefillMode.FORESEEN))
    assert max(one.num_prompts for one in run.iterations) == 1
    assert any(max(b - a for a, b in pairwise(times)) > 2 * TPOT_S for times in run.token_times.values() if times[1:])
    for times in run.token_times.values():
        assert max((b - a for a, b in pairwise(times)), default=0.0) <= LONGEST_GAP * TPOT_S + LONGEST_STEP_S


@each_seed(SEEDS)
def test_late_prefills_in_slack_progress_in_every_iteration(seed: int):
    run = Run(requests(seed, PrefillMode.SLACK, ttft_s=-1.0))
    assert all(it.num_prompts or it.is_full for it in run.iterations if it.wanted)


@each_seed(SEEDS)
def test_prompts_that_go_first_never_share_an_iteration_with_decodes(seed: int):
    run = Run(requests(seed, PrefillMode.FIRST))
    assert not any(it.num_prompts and it.num_decodes for it in run.iterations)
    assert all(it.num_prompts or it.is_full for it in run.iterations if it.wanted)
    assert all(it.num_prompt_tokens <= CHUNK_TOKENS for it in run.iterations)


def test_chunks_with_decodes_stall_decodes_less_than_prompts_that_go_first():
    longest_gap_s = {}
    for mode in PrefillMode:
        times = Run(requests(3, mode)).token_times.values()
        longest_gap_s[mode] = max(after - before for each in times for before, after in pairwise(each))
    assert longest_gap_s[PrefillMode.SLACK] < longest_gap_s[PrefillMode.CHUNKED] < longest_gap_s[PrefillMode.FIRST]


def core_of(*services: str) -> EngineCore:
    """An engine with several services of equal costs."""
    cost = LearntCost(COST)
    pages = PagePool(500)
    held = {
        name: Service(ServiceQueue(name, BlockPool(pages, 4)), SHAPE, None, frozenset(), 4096, cost)
        for name in services
    }
    settings = EngineSettings(
        "e",
        "here",
        1,
        Role.MULTIPLEX,
        Limits(MAX_RUNNING, CHUNK_TOKENS),
        16,
        "auto",
        5.0,
        TransferLimits(),
        deliver_every=256,
    )
    return EngineCore(settings, held, lambda peer, ref: True)


def submit(core: EngineCore, name: str, service: str, num_prompt: int, mode: PrefillMode) -> None:
    sampling = Sampling(max_tokens=100, seed=1, ignore_eos=True)
    spec = RequestSpec(name, GATEWAY, service, [1] * num_prompt, sampling, 1e6, TPOT_S)
    core.receive(GATEWAY, Submit(spec, Epoch(1), prefill=mode), (), 0.0)


def step(core: EngineCore, now: float) -> tuple[Batch, float]:
    """One iteration as long as predicted; when it ends."""
    batch, _ = core.next_batch(now)
    assert batch is not None
    elapsed_s = COST.elapsed_s(batch)
    results = [ChunkResult(None if chunk.draw is None else 7) for chunk in batch.chunks]
    core.finish_step(StepResult(results, elapsed_s), now + elapsed_s)
    return batch, now + elapsed_s


def test_a_prompt_of_one_service_keeps_to_the_slack_of_another_one():
    core, now = core_of("a", "b"), 0.0
    submit(core, "decoding", "a", 10, PrefillMode.CHUNKED)
    _, now = step(core, now)
    submit(core, "prompt", "b", 400, PrefillMode.SLACK)
    token_at = started_at = now
    num_steps = 0
    while core.status(now).num_waiting or core.status(now).prefill_remaining_s:
        batch, now = step(core, now)
        if batch.service == "a":
            num_steps += 1
            token_at = now
            assert token_at <= started_at + num_steps * TPOT_S + 1e-9
    assert num_steps > 10


def test_what_remains_of_a_prefill_is_its_own_work_only():
    core, now = core_of("a"), 0.0
    submit(core, "decoding", "a", 10, PrefillMode.CHUNKED)
    _, now = step(core, now)
    submit(core, "prompt", "a", 200, PrefillMode.SLACK)
    while not core.status(now).prefill_remaining_s:
        assert core.status(now).prefill_waiting_s == pytest.approx(0.2)
        _, now = step(core, now)
    remaining_s = core.status(now).prefill_remaining_s
    batch, _ = core.next_batch(now)
    assert batch is not None
    assert not load_of(batch).chunks
    assert core.status(now + 0.004).prefill_remaining_s == remaining_s  # the running step holds decodes only


def test_steps_are_not_passed_while_a_prompt_waits_for_slack():
    core, now = core_of("a"), 0.0
    submit(core, "decoding", "a", 10, PrefillMode.CHUNKED)
    _, now = step(core, now)
    core.next_batch(now)
    assert core.num_steady_steps() > 0
    submit(core, "prompt", "a", 200, PrefillMode.SLACK)
    assert core.num_steady_steps() == 0


@pytest.mark.parametrize("mode", list(PrefillMode))
@pytest.mark.parametrize("num_generated", range(1, 9))
def test_a_continuation_whose_prefix_is_cached_goes_on_at_once(mode: PrefillMode, num_generated: int):
    """Where only its last token is to be computed, it is a decode as soon as it is admitted."""
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64)
    prompt = list(range(1, 8))
    sampling = Sampling(max_tokens=20, seed=1)
    mesh.submit("only", RequestSpec("before", GATEWAY, SERVICE, prompt, sampling, 1.0, 0.1), prefill=mode)
    mesh.settle()
    expected = mesh.streams["before"]
    generated = expected[:num_generated]
    spec = RequestSpec("after", GATEWAY, SERVICE, prompt, sampling, 1.0, 0.1, generated=generated)
    mesh.streams["after"] = list(generated)
    mesh.submit("only", spec, prefill=mode)
    engine.batch, _ = engine.core.next_batch(mesh.now)
    assert engine.batch is not None, "nothing would wake the engine up again"
    mesh.settle()
    assert mesh.streams["after"] == expected
