"""Prefills by deadline: who passes whom, over whole runs of one engine whose predictions are exact (1 ms a token)."""

from random import Random

import pytest

from mesh.wire.control import PrefillMode, PrefillOrder
from mesh.wire.requests import Epoch, RequestSpec, Sampling, Submit
from tests.engines.test_prefill_modes import CHUNK_TOKENS, Run
from tests.engines.virtual_memory import GATEWAY, SERVICE
from tests.seeds import each_seed

CHUNK_S = 0.001 * CHUNK_TOKENS
Job = tuple[float, int, float]  # arrival, prompt tokens, seconds from arrival to deadline


def submit_of(name: str, num_tokens: int, ttft_s: float, priority: int = 0, first: int = 0) -> Submit:
    sampling = Sampling(max_tokens=1, seed=1, ignore_eos=True)
    prompt = [first * 1000 + index for index in range(num_tokens)]
    spec = RequestSpec(name, GATEWAY, SERVICE, prompt, sampling, ttft_s, 1.0, priority=priority)
    return Submit(spec, Epoch(1), prefill=PrefillMode.SLACK, order=PrefillOrder.DEADLINE)


def ends(*jobs: Job, priorities: tuple[int, ...] = ()) -> list[float]:
    """When each first token came."""
    submits = [
        (at, submit_of(f"r{index}", tokens, ttft_s, priorities[index] if priorities else 0, index))
        for index, (at, tokens, ttft_s) in enumerate(jobs)
    ]
    run = Run(sorted(submits, key=lambda pair: pair[0]))
    return [run.token_times[f"r{index}"][0] for index in range(len(jobs))]


def test_one_due_earlier_passes_a_long_one_that_has_begun():
    long, short = ends((0.0, 1280, 9.0), (0.3, 64, 1.0))
    assert short <= 0.3 + CHUNK_S + 0.064 + CHUNK_S
    assert long == pytest.approx(1.280 + 0.064)


def test_one_due_later_does_not():
    first, later = ends((0.0, 640, 1.0), (0.1, 64, 9.0))
    assert first == pytest.approx(0.640)
    assert later == pytest.approx(0.704)


def test_those_in_time_pass_the_late():
    late, in_time = ends((0.0, 1280, 1.0), (0.0, 640, 1.0))
    assert in_time <= 1.0
    assert late == pytest.approx(1.92)


def test_the_late_does_not_starve():
    """Half a minute of prompts that leave no gap, each in time only if it passes the late one."""
    others = [(0.1 * number, 100, 0.15) for number in range(300)]
    late, *_ = ends((0.0, 1280, 1.0), *others)
    assert late < 10


def test_what_lost_its_kv_is_due_at_once():
    sampling = Sampling(max_tokens=3, seed=1, ignore_eos=True)
    spec = RequestSpec("begun", GATEWAY, SERVICE, [7] * 300, sampling, 9.0, 1.0, generated=[1, 2], age_s=60.0)
    begun = Submit(spec, Epoch(2), prefill=PrefillMode.SLACK, order=PrefillOrder.DEADLINE)
    run = Run([(0.0, submit_of("new", 640, 1.0)), (0.1, begun)])
    assert run.token_times["begun"][0] <= 0.1 + CHUNK_S + 0.302 + CHUNK_S


def test_importance_comes_before_deadlines():
    important, urgent = ends((0.0, 640, 9.0), (0.0, 64, 1.0), priorities=(1, 0))
    assert important == pytest.approx(0.640)
    assert urgent == pytest.approx(0.704)


def _by_deadline(jobs: list[Job]) -> bool:
    """Whether all would be in time if they could pass each other at any moment."""
    now, left = 0.0, {}
    arrivals = sorted(jobs)
    while arrivals or left:
        if not left:
            now = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= now:
            at, tokens, ttft_s = arrivals.pop(0)
            left[(at + ttft_s, len(arrivals))] = tokens / 1000
        due = min(left)
        until = arrivals[0][0] if arrivals else float("inf")
        spent = min(left[due], until - now)
        now, left[due] = now + spent, left[due] - spent
        if left[due] <= 1e-12:
            del left[due]
            if now > due[0]:
                return False
    return True


@each_seed(range(60))
def test_all_are_in_time_if_any_order_keeps_all_deadlines(seed: int):
    """But for what cannot be cut: each may wait for the rest of a chunk once."""
    random = Random(seed)
    jobs: list[Job] = []
    now = 0.0
    while len(jobs) < 8:
        now += random.choice([0.0, random.uniform(0, 1)])
        job = (now, random.choice([40, 300, random.randint(1, 2000)]), random.uniform(0.2, 6))
        if _by_deadline([*jobs, job]):
            jobs.append(job)
    slack_s = CHUNK_S * len(jobs)
    for (at, _, ttft_s), end in zip(
        jobs, ends(*[(at, tokens, ttft_s + slack_s) for at, tokens, ttft_s in jobs]), strict=True
    ):
        assert end <= at + ttft_s + slack_s
