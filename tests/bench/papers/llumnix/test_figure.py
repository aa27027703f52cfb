"""Llumnix's setting: what it measures besides records, what its engines cost, and small runs of it."""

import tomllib
from importlib.resources import files

import pytest

from bench.papers.llumnix.run import run_case
from bench.papers.llumnix.setting import INFAAS, KV_TOKENS, ROUND_ROBIN, Case, make_profile
from bench.papers.llumnix.watch import fragmented
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import load_profile
from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.queue import ServiceQueue
from mesh.wire.requests import Epoch
from tests.router.cluster import make_spec


def queue(num_blocks: int, held: int, *waiting: int, running: int = 0) -> ServiceQueue:
    """Of an engine whose requests wait with so many blocks' worth of tokens, the first one first."""
    made = ServiceQueue("chat", BlockPool(PagePool(num_blocks), 16))
    made.pool.allocate(held)
    made.waiting = [request(number, 16 * blocks, float(number)) for number, blocks in enumerate(waiting)]
    made.running = [request(100 + number, 16, 0.0) for number in range(running)]
    return made


def request(number: int, num_tokens: int, now: float) -> EngineRequest:
    return EngineRequest.of(make_spec(f"r{number}", num_tokens), Epoch(0), now, frozenset(), 10_000)


def test_memory_is_fragmented_if_together_it_would_be_enough_for_heads_of_queues():
    assert fragmented([queue(10, 6, 6), queue(10, 7)]) == 6 / 20
    assert fragmented([queue(10, 6, 8), queue(10, 7)]) == 0.0  # 7 are free in all


def test_only_those_who_wait_for_memory_at_the_head_of_a_queue_count():
    assert fragmented([queue(10, 6, 4), queue(10, 0)]) == 0.0  # it fits
    assert fragmented([queue(10, 6, 4, running=1), queue(10, 0)]) == 4 / 20  # running ones need room to grow
    assert fragmented([queue(10, 6, 5, 9), queue(10, 0)]) == 5 / 20


def test_small_demands_come_first_when_not_all_can_be_met():
    assert fragmented([queue(10, 8, 9), queue(10, 8, 3)]) == 3 / 20


def test_an_a10_costs_what_its_source_says():
    a100, a10 = load_profile("a100-llama2-7b-tp1"), load_profile("a10-llama2-7b-tp1")
    for num_tokens in (256, 2048, 8192):
        assert prefill_s(a10.prefill, num_tokens) == pytest.approx(
            312 / 125 * prefill_s(a100.prefill, num_tokens), rel=0.005
        )
    for num_requests, context in ((1, 100), (16, 8000), (64, 13_000)):
        slower = decode_step_s(a10.decode, num_requests, context) / decode_step_s(a100.decode, num_requests, context)
        assert slower == pytest.approx(2039 / 600, rel=0.005)
    assert prefill_s(a10.prefill, 1) >= decode_step_s(a10.decode, 1, 1) * 0.99
    presets = tomllib.loads(files("engines.costs").joinpath("presets.toml").read_text(encoding="utf-8"))
    assert presets["profiles"]["a10-llama2-7b-tp1"]["source"] == "datasheet"


def test_engines_hold_as_many_tokens_as_the_papers():
    profile = make_profile()
    assert profile.kv_memory_bytes // profile.kv_bytes_per_token == KV_TOKENS


def test_a_run_tells_the_latencies_of_the_same_requests_for_every_contender():
    case = Case("S-S", 14.0, INFAAS, 0, 100, num_engines=4)
    assert case.requests() == case.requests()
    result = run_case(case)
    assert (result.num_requests, result.num_failed) == (100, 0)
    latencies = result.latencies
    assert 0 < latencies.ttft_mean <= latencies.ttft_p99 <= latencies.e2e_p99
    assert 0.03 < latencies.tpot_mean <= latencies.tpot_p99


def test_preemptions_are_seen_and_what_they_cost():
    busy = run_case(Case("M-M", 12.0, ROUND_ROBIN, 0, 250, num_engines=2))
    assert busy.preempted > 0
    assert busy.lost_s > 0
    assert busy.fragmented > 0
    assert busy.moved == {0: 250}
