import gzip
import json
from random import Random

import pytest

from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.rows import TraceError
from simulation.loads.traces import (
    TraceRequest,
    at_rate,
    load_lengths,
    load_trace,
    mean_rate,
    scaled,
)
from simulation.loads.workload import FIRST_UNIQUE, prompt_of

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9305900,396,109
"""
MOONCAKE = [
    {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 0, "input_length": 600, "output_length": 6, "hash_ids": [0, 2]},
    {"timestamp": 3000, "input_length": 10, "output_length": 7, "hash_ids": [3]},
    {"timestamp": 3000, "input_length": 10, "output_length": 8, "hash_ids": [4]},
]
RECORD = {"arrived_s": 1.5, "input_tokens": 3, "output_tokens": 4, "outcome": "finished"}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(tmp_path, text, name="trace"):
    path = tmp_path / name
    path.write_text(text)
    return path


def load(tmp_path, text):
    return load_trace(write(tmp_path, text), Random(1))


def test_azure(tmp_path):
    assert load(tmp_path, AZURE) == [TraceRequest(0.0, 374, 44), TraceRequest(4.25, 396, 109)]


@pytest.mark.parametrize("empty", ["2023-11-16 18:15:48,0,44\n", "2023-11-16 18:15:48,374,0\n"])
def test_what_has_no_tokens_is_left_out_and_told(tmp_path, capsys, empty):
    assert load(tmp_path, AZURE + empty) == [TraceRequest(0.0, 374, 44), TraceRequest(4.25, 396, 109)]
    told = "1 of 3 requests left out: each has no token in its prompt or answer"
    assert capsys.readouterr().err == f"{tmp_path / 'trace'}: {told}\n"


def test_mooncake_is_spread_inside_its_ticks_in_order(tmp_path):
    requests = load(tmp_path, lines(*MOONCAKE))
    assert [request.num_output for request in requests] == [5, 6, 7, 8]
    times = [request.at_s for request in requests]
    assert times == sorted(times)
    assert len(set(times)) == 4
    assert all(0 <= time < 3 for time in times[:2])
    assert all(3 <= time < 6 for time in times[2:])
    assert requests[0].blocks == (0, 1)
    assert requests == load(tmp_path, lines(*MOONCAKE))


def test_arrivals_with_lengths(tmp_path):
    text = "req_id,arrival_s,client,input_tokens,output_tokens\n0,2.5,13,3,4\n1,3.0,2,36,137\n"
    assert load(tmp_path, text) == [TraceRequest(0.0, 3, 4), TraceRequest(0.5, 36, 137)]


def test_records_are_sorted_and_start_at_0(tmp_path):
    requests = load(tmp_path, lines(RECORD | {"arrived_s": 3.5, "output_tokens": 9}, RECORD))
    assert requests == [TraceRequest(0.0, 3, 4), TraceRequest(2.0, 3, 9)]


def test_gzipped(tmp_path):
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(lines(RECORD).encode()))
    assert load_trace(path, Random(1)) == [TraceRequest(0.0, 3, 4)]


def test_any_format_gives_lengths(tmp_path):
    assert load_lengths(write(tmp_path, "input_tokens,output_tokens\n74,918\n")) == [TraceRequest(0.0, 74, 918)]
    assert [request.num_input for request in load_lengths(write(tmp_path, AZURE))] == [374, 396]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", ":1:", "empty; a trace begins with its columns"),
        ("when,what\n1,2\n", ":1:", "TIMESTAMP, ContextTokens, GeneratedTokens (Azure)"),
        ("TIMESTAMP,ContextTokens\n", ":1: GeneratedTokens:", "missing; Azure has TIMESTAMP"),
        ("ContextTokens,GeneratedTokens\n", ":1: TIMESTAMP:", "missing; Azure has TIMESTAMP"),
        ("output_tokens\n4\n", ":1: input_tokens:", "missing; a file of lengths has"),
        ("arrival_s,function\n1,0\n", ":1: input_tokens:", "missing; a file of arrivals has"),
        ("arrival_s,input_tokens,output_tokens\n-1,3,4\n", ":2: arrival_s:", "'-1' is not a time"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ":1:", "no request follows"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n-1,5,5\n", ":2: TIMESTAMP:", "'-1' is not a time; use a date"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,-1,5\n", ":2: ContextTokens:", "'-1' is not a length"),
        (f"{AZURE}7,5,5\n", ":4: TIMESTAMP:", "'7' beside '2023-11-16 18:15:46.6805900'; use dates or seconds"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,5,0\n", ":1:", "no request follows"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,5,5\n2,5\n", ":3: GeneratedTokens:", "missing"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,5,x\n", ":2: GeneratedTokens:", "whole number of tokens"),
        ("input_tokens,output_tokens\n1,2\n", ":1:", "it as --lengths"),
        (lines(MOONCAKE[0] | {"input_length": 9 * 10**8}), ":1: input_length:", "900000000 is too long; a prompt or"),
        (lines({"timestamp": 0, "input_length": 1}), ":1: output_length:", "missing; Mooncake has"),
        (lines({"input_length": 1, "output_length": 1}), ":1: timestamp:", "missing; Mooncake has"),
        (lines({"input_tokens": 1, "output_tokens": 1}), ":1: arrived_s:", "missing; a file of records has"),
        (lines(MOONCAKE[0], MOONCAKE[1] | {"timestamp": -3}), ":2: timestamp:", "-3 is not a time"),
        (lines(MOONCAKE[0] | {"output_length": -1}), ":1: output_length:", "-1 is not a length"),
        (lines(MOONCAKE[0], MOONCAKE[0] | {"timestamp": 1.7e12}), ":", "are 53.8 years, and one is the most"),
        (lines(MOONCAKE[0] | {"input_length": 1.5}), ":1: input_length:", "1.5 is not a length"),
        (lines(MOONCAKE[0] | {"hash_ids": [-1]}), ":1: hash_ids:", "whole numbers from 0"),
        (lines(RECORD | {"arrived_s": "soon"}), ":1: arrived_s:", "'soon' is not a time"),
        ("{broken\n", ":1:", "not JSON: Expecting property name enclosed in double quotes at character 2"),
        (lines(RECORD) + "[]\n", ":2:", "not a JSON object"),
    ],
)
def test_faults_name_file_line_and_column(tmp_path, text, place, words):
    with pytest.raises(TraceError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'trace'}{place}")
    assert words in message
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "nothing.csv", Random(1))
    with pytest.raises(TraceError, match="cannot be read"):
        load_trace(write(tmp_path, AZURE, "not_gzip.gz"), Random(1))


def test_rate_and_scale():
    requests = [TraceRequest(float(at), 1, 1) for at in range(11)]
    assert mean_rate(requests) == 1.0
    assert at_rate(requests, 5.0)[-1].at_s == pytest.approx(2.0)
    assert scaled(requests, 2.0)[-1].at_s == 5.0


@pytest.mark.parametrize("process", Process)
def test_arrivals_have_the_rate_that_was_asked_for(process):
    pool = [TraceRequest(0.0, 7, 8)]
    requests = list(synthesize(pool, Arrivals(20.0, process), 400.0, Random("seed")))
    assert len(requests) / 400 == pytest.approx(20.0, rel=0.1)
    times = [request.at_s for request in requests]
    assert times == sorted(times)
    assert requests[0].num_input == 7


def test_prompts_share_what_the_trace_says_is_shared():
    first = prompt_of(TraceRequest(0.0, 600, 1, (0, 1)), 0)
    second = prompt_of(TraceRequest(0.0, 700, 1, (0, 2)), 1)
    assert (len(first), len(second)) == (600, 700)
    assert first[:512] == second[:512]
    assert first[512] != second[512]
    assert prompt_of(TraceRequest(0.0, 6, 1), 5) == [255, 5, 0, 0, 0, 255]
    assert prompt_of(TraceRequest(0.0, 514, 1, (9,)), 5)[512:] == [FIRST_UNIQUE + 5] * 2
