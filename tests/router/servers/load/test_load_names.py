"""Metrics of servers, as they were published by them."""

import pytest

from router.servers.facts import ServerKind, ServerLoad
from router.servers.load.load_names import read_load

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 4.0
vllm:num_requests_waiting{engine="0",model_name="a \\"quoted\\" {name}"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="1",num_gpu_blocks="1000"} 1.0
"""
SGLANG = """\
sglang:num_running_reqs{model_name="m",tp_rank="0"} 5.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.28
sglang:max_total_num_tokens{model_name="m"} 4096.0
"""
LLAMA_CPP = """\
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
llamacpp:requests_deferred 7
"""


@pytest.mark.parametrize(
    ("kind", "text", "load"),
    [
        (ServerKind.VLLM, VLLM, ServerLoad(7, 2, 0.5, 32000, True)),
        (ServerKind.VLLM, "vllm:gpu_cache_usage_perc 0.5\n", ServerLoad(kv_used=0.5)),
        (ServerKind.SGLANG, SGLANG, ServerLoad(5, 1, 0.28, 4096, None)),
        (ServerKind.LLAMA_CPP, LLAMA_CPP, ServerLoad(2, 7)),
        (ServerKind.OPENAI, VLLM, ServerLoad()),
        (ServerKind.VLLM, SGLANG, ServerLoad()),
        (ServerKind.VLLM, "", ServerLoad()),
    ],
)
def test_each_kind_has_its_names(kind: ServerKind, text: str, load: ServerLoad):
    assert read_load(text, kind) == load


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300", "many", ""])
def test_what_is_no_count_is_not_known(value: str):
    assert read_load(f"vllm:num_requests_running {value}\n", ServerKind.VLLM).num_running is None


def test_more_memory_than_there_can_be_is_not_known():
    text = 'vllm:cache_config_info{block_size="99999999999",num_gpu_blocks="99999999999"} 1\n'
    assert read_load(text, ServerKind.VLLM).kv_tokens is None


def test_a_page_without_end_costs_no_more_than_reading_it():
    text = "vllm:num_requests_running 1\n" * 100_000 + 'vllm:cache_config_info{block_size="' + "9" * 10_000
    assert read_load(text, ServerKind.VLLM).num_running == 64
