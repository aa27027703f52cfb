"""The benches of GPUs, as far as a processor can run them."""

import sys

import pytest

from bench.engine.gpu_check import tasks, told_decode, told_disaggregation, told_migration, told_transfer
from bench.engine.gpu_decode import measure as measure_decode
from bench.engine.gpu_decode import weight_bytes
from bench.models.random_llama import LLAMA2_7B, SMALL
from bench.transfer.gpu import measure


def test_transfers_are_measured_between_two_processes():
    copy_rate, rows = measure("cpu", 8, ["shm", "tcp"])
    assert copy_rate > 0
    assert [(row.transport, row.messages) for row in rows] == [
        ("shm", "1024 blocks"),
        ("shm", "one"),
        ("tcp", "1024 blocks"),
    ]
    assert all(row.ratio == pytest.approx(row.gb_per_s / copy_rate) for row in rows)


def test_a_decode_step_is_measured_beside_its_floor():
    decode = measure_decode("cpu", SMALL, 2, 40)
    assert decode.step_ms > 0
    assert decode.kv_bytes == 2 * 48 * 2 * 2 * 4 * 64 * 2
    assert decode.ratio == decode.step_ms / decode.floor_ms


def test_the_weights_of_llama_2_7b_are_those_that_it_has():
    assert weight_bytes(LLAMA2_7B) / 2 == pytest.approx(6.74e9 - 32000 * 4096, rel=0.001)


def test_one_call_takes_less_than_ten_minutes_and_tells_figures_beside_goals(tmp_path):
    todo = tasks("cuda:0", tmp_path)
    assert [task.name for task in todo] == ["tests", "transfer", "decode", "disaggregation", "migration"]
    assert all(task.command[0] == sys.executable for task in todo)
    row = {"transport": "nccl", "messages": "one", "ratio": 0.5}
    assert told_transfer({"rows": [row]}) == [("nccl, one a message", "0.50 of a copy", ">= 0.60")]
    assert told_decode({"ratio": 1.234})[0][1] == "1.23x of the memory floor"
    assert told_disaggregation({"overhead": 0.0421})[0][1] == "4.2% of the prefill"
    assert told_migration([{"stop_ms": 5.0, "step_ms": 2.0}])[0][1] == "1.5 steps of downtime"
