"""Traces by other names: of other simulators, data sets and load generators."""

import json
from random import Random

import pytest

from router.history.records import Outcome
from simulation.loads.rows import TraceError
from simulation.loads.traces import load_lengths, load_trace

AIPERF = {
    "metadata": {"request_start_ns": 1759813207532900363, "benchmark_phase": "profiling"},
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "time_to_first_token": {"value": 255.9, "unit": "ms"},
        "inter_token_latency": {"value": 5.2, "unit": "ms"},
        "request_latency": {"value": 297.5, "unit": "ms"},
    },
    "error": None,
}
VLLM = {
    "request_throughput": 1.0,
    "input_lens": [32, 64, 16],
    "output_lens": [3, 1, 0],
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.03], [], []],
    "start_times": [100.5, 101.0, 102.0],
}
BENCH = {
    "number": 0, "model": "chat", "due_s": 1.5, "woke_s": 1.5, "sent_s": 1.6, "ended_s": 3.1, "input_tokens": 40,
    "output_tokens": 6, "asked_output_tokens": 9, "first_s": 2.0, "last_s": 3.0, "promise": {"ttft_s": 1.0},
}  # fmt: skip
BENCH_FAILED = {
    "number": 1, "model": "chat", "due_s": 2.0, "woke_s": 2.0, "sent_s": 2.0, "ended_s": 2.1, "input_tokens": 0,
    "output_tokens": 0, "asked_input_tokens": 41, "asked_output_tokens": 9, "status": 503, "failure": "refused",
}  # fmt: skip
GUIDELLM = {
    "benchmarks": [
        {
            "requests": {
                "successful": [{"request_start_time": 7.0, "prompt_tokens": 256, "output_tokens": 128}],
                "errored": [{"prompt_tokens": None}],
            }
        }
    ]
}
SHAREGPT = [
    {"id": "a", "conversations": [{"from": "human", "value": "x" * 40}, {"from": "gpt", "value": "y" * 21}]},
    {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
]
TIMED = {
    "vidur": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,374,44\n2,396,109\n",
        [(0.0, 374, 44), (0.5, 396, 109)],
    ),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,API log\n45,ChatGPT,1087,0,1087,API log\n118,GPT-4,417,276,693,API log\n",
        [(0.0, 472, 18), (113.0, 417, 276)],
    ),
    "azure 2024": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.017335+00:00,2399,6\n",
        [(0.0, 2162, 5), (0.007405, 2399, 6)],
    ),
    "servegen": (
        "request_id,timestamp,input_tokens,output_tokens\n0,3.25,100,20\n1,4.0,7,8\n",
        [(0.0, 100, 20), (0.75, 7, 8)],
    ),
    "llmservingsim": (
        json.dumps({"request_id": "0", "input_toks": 23, "output_toks": 5, "arrival_time": 1787267980.5}) + "\n",
        [(0.0, 23, 5)],
    ),
    "aiperf": (
        f"{json.dumps(AIPERF)}\n{json.dumps({**AIPERF, 'metrics': {}, 'error': {'code': 500}})}\n",
        [(0.0, 550, 9)],
    ),
    "mesh bench": (
        f"{json.dumps(BENCH)}\n{json.dumps(BENCH_FAILED)}\n{json.dumps({**BENCH_FAILED, 'asked_output_tokens': 0})}\n",
        [(0.0, 40, 6), (0.5, 41, 9)],
    ),
    "vllm": (json.dumps(VLLM), [(0.0, 32, 3), (0.5, 64, 1)]),
    "vllm, indented": (json.dumps(VLLM, indent=2), [(0.0, 32, 3), (0.5, 64, 1)]),
    "guidellm": (json.dumps(GUIDELLM), [(0.0, 256, 128)]),
}
LENGTHS = {
    "vidur": (",num_prefill_tokens,num_decode_tokens,pd_ratio\n0,374,44,8.5\n", [(374, 44)]),
    "vidur by pandas": (",num_prefill_tokens,num_decode_tokens\n0,374.0,44.0\n", [(374, 44)]),
    "sharegpt": (json.dumps(SHAREGPT), [(10, 5)]),
    "sharegpt whose first conversation is empty": (json.dumps([{"conversations": []}, *SHAREGPT]), [(10, 5)]),
    "sharegpt, one a line": ("".join(f"{json.dumps(one)}\n" for one in SHAREGPT), [(10, 5)]),
    "batches": (
        '{"request_id": 0, "type": "text", "input_length": 61, "output_length": 2370, "duration": 14000}\n',
        [(61, 2370)],
    ),
    "vllm without times": (json.dumps({**VLLM, "start_times": []}), [(32, 3), (64, 1)]),
}


def written(tmp_path, text):
    path = tmp_path / "trace"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "expected"), TIMED.values(), ids=list(TIMED))
def test_requests_with_times(tmp_path, text, expected):
    requests = load_trace(written(tmp_path, text), Random(1))
    assert [(round(one.at_s, 6), one.num_input, one.num_output) for one in requests] == expected


@pytest.mark.parametrize(("text", "expected"), LENGTHS.values(), ids=list(LENGTHS))
def test_lengths(tmp_path, text, expected):
    path = written(tmp_path, text)
    assert [(one.num_input, one.num_output) for one in load_lengths(path)] == expected
    with pytest.raises(TraceError, match="no column of times"):
        load_trace(path, Random(1))


def test_what_a_load_generator_saw_is_kept(tmp_path):
    first, _ = load_trace(written(tmp_path, json.dumps(VLLM)), Random(1))
    assert (first.answer.ttft_s, first.answer.tpot_s, first.answer.e2e_s) == pytest.approx((0.1, 0.02, 0.14))
    whole, failed = load_trace(written(tmp_path, f"{json.dumps(BENCH)}\n{json.dumps(BENCH_FAILED)}\n"), Random(1))
    assert (whole.answer.ttft_s, whole.answer.tpot_s, whole.answer.e2e_s) == pytest.approx((0.5, 0.2, 1.5))
    assert (whole.service, whole.slo_ttft_s, whole.slo_tpot_s, whole.was_answered) == ("chat", 1.0, None, True)
    assert (failed.answer.outcome, failed.answer.ttft_s, failed.was_answered) == (Outcome.FAILED, None, False)
    [record] = load_trace(written(tmp_path, json.dumps(AIPERF)), Random(1))
    assert (record.answer.ttft_s, record.answer.tpot_s) == pytest.approx((0.2559, 0.0052))


def test_an_unknown_header_is_answered_with_the_nearest_known_one(tmp_path):
    words = r"trace:1: not a known trace: it has arrival, prefill_tokens, decode_tokens; nearest is Vidur.*num_prefill"
    with pytest.raises(TraceError, match=words):
        load_trace(written(tmp_path, "arrival,prefill_tokens,decode_tokens\n"), Random(1))


def test_a_column_that_is_missing_is_told_with_the_one_that_it_may_be(tmp_path):
    words = r"GeneratedTokens: missing \(is it 'GenerateTokens'\?\); Azure has TIMESTAMP"
    with pytest.raises(TraceError, match=words):
        load_trace(written(tmp_path, "TIMESTAMP,ContextTokens,GenerateTokens\n"), Random(1))


@pytest.mark.parametrize(("mark", "words"), [(";", "semicolons"), ("\t", "tabs")])
def test_columns_with_something_else_between_them_are_told(tmp_path, mark, words):
    columns = mark.join(("arrival_s", "input_tokens", "output_tokens"))
    with pytest.raises(TraceError, match=f"trace:1: {words} are between its columns; write commas"):
        load_trace(written(tmp_path, f"{columns}\n"), Random(1))


def test_a_mark_of_the_encoding_is_no_part_of_a_column(tmp_path):
    [only] = load_trace(written(tmp_path, "\ufeffarrival_s,input_tokens,output_tokens\n3,5,7\n"), Random(1))
    assert (only.num_input, only.num_output) == (5, 7)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_result_without_its_requests_says_how_to_get_them(tmp_path, indent):
    with pytest.raises(TraceError, match="with --save-detailed it would have each request"):
        load_trace(written(tmp_path, json.dumps({"request_throughput": 1.0}, indent=indent)), Random(1))
    with pytest.raises(TraceError, match=r"its profile_export.jsonl does"):
        load_trace(written(tmp_path, "Metric,avg,min\nTime to First Token (ms),1,1\n"), Random(1))


@pytest.mark.parametrize(
    "document",
    [
        {"input_lens": 5, "output_lens": [1]},
        {"input_lens": [5], "output_lens": [5], "ttfts": ["a"], "itls": [["b"]]},
        {"benchmarks": [{"requests": {"successful": ["a"]}}]},
        [{"conversations": [1]}],
        [{"conversations": 1}],
    ],
)
def test_documents_of_another_shape_are_told_in_one_line(tmp_path, document):
    with pytest.raises(TraceError) as caught:
        load_trace(written(tmp_path, json.dumps(document)), Random(1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [{"benchmarks": []}, {"input_lens": []}, {"input_lens": [5], "output_lens": [0], "start_times": [1.0]}],
)
def test_documents_without_a_request_are_told_in_one_line(tmp_path, document):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    for read in (lambda: load_trace(path, Random(0)), lambda: load_lengths(path)):
        with pytest.raises(TraceError, match=r"no request follows|no column of times"):
            read()


def test_requests_of_a_result_that_failed_are_left_out_with_a_word(tmp_path, capsys):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"input_lens": [5, 6], "output_lens": [0, 7], "start_times": [1.0, 2.0]}))
    assert [(one.num_input, one.num_output) for one in load_trace(path, Random(0))] == [(6, 7)]
    assert "1 of 2 requests left out: each has no token" in capsys.readouterr().err
