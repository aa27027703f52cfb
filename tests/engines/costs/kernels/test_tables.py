"""Tables of measured kernels, and times between their points."""

import pytest

from engines.costs.kernels.tables import GRAPH, IMBALANCE, ExpertKernel, Grid, Heads, make_kernels, read_kernels
from mesh.errors import UserError

GEMM = {"gemm_dtype": "fp8", "m": 1, "n": 2, "k": 4, "latency": 0.5}
PROMPT = {
    "attn_dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16",
    "batch_size": 1,
    "num_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "window_size": 128,
    "isl": 16,
    "latency": 0.1,
}
REDUCE = {"backend": GRAPH, "num_gpus": 2, "message_size": 128, "latency": 0.01}
EXPERTS = {
    "version": "2",
    "moe_ep_size": 1,
    "moe_tp_size": 2,
    "distribution": IMBALANCE,
    "moe_dtype": "w4a16_mxfp4",
    "hidden_size": 64,
    "inter_size": 32,
    "num_experts": 8,
    "topk": 2,
    "num_tokens": 4,
    "latency": 0.2,
}


def test_a_grid_knows_its_points_and_is_linear_in_logarithms_between_them():
    grid = Grid({(size, rows): float(size * rows) for size in (1, 4, 16) for rows in (1, 8)})
    assert grid(4, 8) == pytest.approx(32)
    assert grid(2, 3) == pytest.approx(6)
    assert grid(64, 16) == pytest.approx(1024)  # as between the last two
    assert grid(16, 0.5) == pytest.approx(16)  # level before the first


def test_a_point_that_was_not_measured_matters_only_where_it_is_asked_for():
    grid = Grid({(1, 1): 1.0, (2, 1): 2.0, (1, 2): 3.0})
    assert grid(2, 1) == pytest.approx(2.0)
    assert grid(1, 2) == pytest.approx(3.0)


def test_rows_are_sorted_by_what_they_are_of():
    decode = PROMPT | {"isl": 1, "step": 31, "batch_size": 4}
    kernels = make_kernels([GEMM], [PROMPT], [decode], [REDUCE], [EXPERTS])
    heads = Heads(8, 2, 64, 128)
    assert kernels.gemm["fp8"](1, 2, 4) == pytest.approx(0.5)
    assert kernels.context[heads] == {16: 0.1}
    assert kernels.generation[heads] == {(4, 32): 0.1}
    assert kernels.all_reduce[2](128) == pytest.approx(0.01)
    assert kernels.experts[ExpertKernel("w4a16_mxfp4", 64, 32, 8, 2, sharing=2)](4) == pytest.approx(0.2)


def test_experts_may_be_spread_and_kv_narrow():
    kernels = make_kernels([], [PROMPT | {"kv_cache_dtype": "fp8"}], [], [], [EXPERTS | {"moe_ep_size": 4}])
    assert kernels.context == {Heads(8, 2, 64, 128, kv="fp8"): {16: 0.1}}
    assert list(kernels.experts) == [ExpertKernel("w4a16_mxfp4", 64, 32, 8, 2, sharing=2, spread=4)]


def test_all_reduces_need_not_say_how_they_are_launched():
    reduce = {key: value for key, value in REDUCE.items() if key != "backend"}
    assert make_kernels([], [], [], [reduce], []).all_reduce[2](128) == pytest.approx(0.01)


def test_the_newest_version_counts_that_measured_those_experts():
    older = [EXPERTS | {"version": "1", "latency": 0.3}, EXPERTS | {"version": "1", "num_tokens": 8}]
    [grid] = make_kernels([], [], [], [], [EXPERTS, *older]).experts.values()
    assert (grid(4), grid(8)) == (pytest.approx(0.2), pytest.approx(0.2))


def test_what_no_preset_is_made_of_is_left_out():
    many, narrow = PROMPT | {"batch_size": 2}, PROMPT | {"attn_dtype": "fp8"}
    eager, balanced = REDUCE | {"backend": "vllm_eager"}, EXPERTS | {"distribution": "balanced"}
    kernels = make_kernels([GEMM], [many, narrow], [], [eager], [balanced])
    assert (kernels.context, kernels.all_reduce, kernels.experts) == ({}, {}, {})


def test_a_folder_without_tables_is_told_in_a_line(tmp_path):
    with pytest.raises(UserError, match="; give systems/data/DEVICE of the package aiconfigurator-core"):
        read_kernels(tmp_path)
