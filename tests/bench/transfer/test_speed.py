"""The benches of transfers and of GPUs, as far as a processor can run them."""

import importlib.util
import sys

import pytest

from bench.engine.gpu_check import (
    NAMES,
    tasks,
    told_decode,
    told_disaggregation,
    told_migration,
    told_tiers,
    told_transfer,
)
from bench.engine.gpu_decode import measure as measure_decode
from bench.engine.gpu_decode import weight_bytes
from bench.models.random_llama import LLAMA2_7B, SMALL
from bench.transfer.speed import compare


def test_all_ways_are_measured_between_two_processes():
    rows = compare("cpu", 256, 1)
    ways = ["memcpy", "shm", "shm + checksum", "bare socket", "tcp", "tcp + checksum"]
    assert [row.way for row in rows] == ways + ["nixl"] * (importlib.util.find_spec("nixl") is not None)
    assert all(row.ratio == row.gb_per_s / rows[0].gb_per_s > 0 < row.cpu_s_per_gb for row in rows)


def test_a_decode_step_is_measured_beside_its_floor():
    decode = measure_decode("cpu", SMALL, 2, 40)
    assert decode.step_ms > 0
    assert decode.kv_bytes == 2 * 48 * 2 * 2 * 4 * 64 * 2
    assert decode.ratio == decode.step_ms / decode.floor_ms


def test_the_weights_of_llama_2_7b_are_those_that_it_has():
    assert weight_bytes(LLAMA2_7B) / 2 == pytest.approx(6.74e9 - 32000 * 4096, rel=0.001)


def test_one_call_takes_less_than_ten_minutes_and_tells_figures_beside_goals(tmp_path):
    todo = tasks("cuda:0", tmp_path)
    assert tuple(task.name for task in todo) == NAMES
    assert all(task.command[0] == sys.executable for task in todo)
    rows = [{"way": "copy", "ratio": 1.0}, {"way": "nccl", "ratio": 0.5}]
    assert told_transfer({"rows": rows}) == [("nccl", "0.50 of a copy", ">= 0.60")]
    assert told_decode({"ratio": 1.234})[0][1] == "1.23x of the memory floor"
    assert told_disaggregation({"overhead": 0.0421})[0][1] == "4.2% of the prefill"
    assert told_migration([{"stop_ms": 5.0, "step_ms": 2.0}])[0][1] == "1.5 steps of downtime"
    assert told_tiers([{"ttft_s": [[9.0], [4.0]]}, {"ttft_s": [[9.0], [1.0]]}])[0][1] == "0.25x of computing it"
