"""What others measured becomes costs."""

import json
from math import inf
from random import Random

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from engines.costs.linear import decode_step_s, prefill_s
from mesh.wire.status import DecodeCost, PrefillCost
from router.profiling.experiments import Aim, AskedLengths, LoadExperiment
from router.profiling.published.files import read_file
from router.profiling.published.prometheus import read_prometheus, windows_of
from router.profiling.published.seen import FormatError, Published, SeenMeans, joined, of_means
from router.profiling.published.window_fit import fit_published, is_loaded
from tests.router.profiling.virtual_server import VirtualServer

PREFILL, DECODE = PrefillCost(0.02, 1e-4), DecodeCost(0.02, 5e-4)
AT_A_TIME = (1, 2, 4, 8, 16)


def one_request(random, num_before):
    """As a server of `PREFILL` and `DECODE` answers it where so many others are written."""
    num_input, num_output = random.randint(100, 800), random.randint(20, 60)
    step_s = DECODE.fixed_s + DECODE.per_request_s * (num_before + 1) + 1e-4 * num_before * 450 / 40
    return num_input, num_output, 0.005 + PREFILL.fixed_s + 1e-4 * num_input + 0.01 * num_before, step_s


def vllm_result(at_a_time, num_requests=40, **more):
    random = Random(at_a_time)
    rows = [one_request(random, at_a_time - 1) for _ in range(num_requests)]
    return {
        "model_id": "m",
        "request_throughput": 1.0,
        "max_concurrency": at_a_time,
        "completed": num_requests,
        "input_lens": [row[0] for row in rows],
        "output_lens": [row[1] for row in rows],
        "ttfts": [row[2] for row in rows],
        "itls": [[row[3]] * (row[1] - 1) for row in rows],
        **more,
    }


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def assert_costs(published: Published, tolerance=0.1):
    terms = fit_published(published)
    found = terms.cost
    for num in AT_A_TIME:
        expected = DECODE.fixed_s + DECODE.per_request_s * num
        assert decode_step_s(found.decode, num, 450 * num) == pytest.approx(expected, rel=tolerance)
    assert terms.request_s + prefill_s(found.prefill, 400) == pytest.approx(0.065, rel=tolerance)


def test_details_of_vllm_bench_serve(tmp_path):
    files = [written(tmp_path, f"{num}.json", vllm_result(num)) for num in AT_A_TIME]
    assert_costs(joined([read_file(path) for path in files]))


def test_means_of_vllm_bench_serve(tmp_path):
    parts = []
    for num in AT_A_TIME:
        result = vllm_result(num)
        mean = {name: sum(result[name]) / 40 for name in ("input_lens", "output_lens", "ttfts")}
        step_s = sum(gaps[0] for gaps in result["itls"]) / 40
        rate = num / (mean["output_lens"] * step_s)
        kept = {name: result[name] for name in ("model_id", "max_concurrency", "completed")}
        figures = {
            "total_input_tokens": 40 * mean["input_lens"],
            "total_output_tokens": 40 * mean["output_lens"],
            "mean_ttft_ms": 1e3 * mean["ttfts"],
            "mean_tpot_ms": 1e3 * step_s,
            "request_throughput": rate,
        }
        parts.append(read_file(written(tmp_path, f"{num}.json", kept | figures)))
    assert_costs(joined(parts), tolerance=0.25)


def records(one):
    return {
        "input_sequence_length": {"value": one[0]},
        "output_sequence_length": {"value": one[1]},
        "time_to_first_token": {"value": 1e3 * one[2], "unit": "ms"},
        "inter_token_latency": {"value": 1e3 * one[3], "unit": "ms"},
    }


def served_rows():
    """Requests with the times of their starts: waves at the virtual server."""
    server, random, rows = VirtualServer(max_running=64), Random(5), []
    for num in (1, 1, 1, 1, 2, 4, 8, 16, 8, 4, 2, 1, 1, 1, 1):
        asks = tuple(AskedLengths(random.randint(50, 400), random.randint(10, 40)) for _ in range(num))
        for one in server.run(LoadExperiment(Aim.DECODE, asks)).answers:
            num_output = len(one.events)
            step_s = (one.last_s - one.first_s) / (num_output - 1)
            rows.append((one.num_input, num_output, one.ttft_s, step_s, one.sent_s))
    return server, rows


def test_records_of_aiperf(tmp_path):
    server, rows = served_rows()
    text = "".join(
        json.dumps({"metadata": {"request_start_ns": 1e9 * row[4]}, "metrics": records(row), "error": None}) + "\n"
        for row in rows
    )
    failed = json.dumps({"metadata": {}, "metrics": {}, "error": {"code": 500}}) + "\n"
    published = read_file(written(tmp_path, "profile_export.jsonl", text + failed))
    terms = fit_published(published)
    assert not is_loaded(published)
    assert terms.request_s + prefill_s(terms.cost.prefill, 200) == pytest.approx(0.01 + 0.02 + 200 * 3e-5, rel=0.1)
    expected = decode_step_s(server.cost.decode, 8, 8 * 240)
    assert decode_step_s(terms.cost.decode, 8, 8 * 240) == pytest.approx(expected, rel=0.15)
    assert terms.held_out


def test_requests_of_guidellm(tmp_path):
    _, rows = served_rows()
    successful = [
        {
            "prompt_tokens": row[0],
            "output_tokens": row[1],
            "time_to_first_token_ms": 1e3 * row[2],
            "inter_token_latency_ms": 1e3 * row[3],
            "request_start_time": row[4],
        }
        for row in rows
    ]
    published = read_file(written(tmp_path, "b.json", {"benchmarks": [{"requests": {"successful": successful}}]}))
    assert published.num_requests == len(rows)
    assert fit_published(published).cost.decode.fixed_s > 0


AIPERF_CSV = """Metric,avg,min,max,p50
Time to First Token (ms),65.0,60,70,65
Inter Token Latency (ms),20.5,20,21,20
Input Sequence Length (tokens),"1,400.00",400,400,400
Output Sequence Length (tokens),40.00,40,40,40

Metric,Value
Request Count,64.00
Request Throughput (requests/sec),1.10
"""


def test_means_of_aiperf(tmp_path):
    published = read_file(written(tmp_path, "aiperf.csv", AIPERF_CSV))
    [window] = published.windows
    assert (window.num_running, window.step_s) == pytest.approx((1.0, 0.0205))
    assert published.firsts[0].num_input == 1400
    metrics = {"avg": 1.0}
    table = dict.fromkeys(("input_sequence_length", "output_sequence_length", "inter_token_latency"), metrics)
    config = {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 32}}
    document = {**table, "time_to_first_token": metrics, "request_throughput": metrics, "input_config": config}
    found = read_file(written(tmp_path, "aiperf.json", document))
    assert (found.model, found.firsts[0].num_before) == ("m", 31)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("nothing at all", "neither JSON nor JSON lines"),
        ({"answers": 5}, "not known, as it has answers; it may be a result of vllm bench serve"),
        ({"request_throughput": 1.0, "completed": 3}, "total_input_tokens: None is no number"),
        ({"benchmarks": []}, "no successful request is in it"),
        ("Metric,avg\nInter Token Latency (ms),1\n", "Input Sequence Length: missing"),
        (vllm_result(2, max_concurrency=None), "neither when requests were sent nor how many at a time"),
        (vllm_result(2, input_lens=[1]), "should be lists of one length"),
        (vllm_result(2, output_lens=["a"] * 40), "not as its format has it"),
        (vllm_result(2, itls=[["a"]] * 40), "not as its format has it"),
        (vllm_result(2, ttfts=[inf] * 40), "no request of it was answered"),
        ({**vllm_result(2, ttfts=None), "completed": 0}, "no request was answered"),
        ("[" * 100_000, "not as its format has it"),
        ({"benchmarks": 5}, "not as its format has it|no successful request"),
        ("", "empty"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(tmp_path, content, words):
    with pytest.raises(FormatError, match=words):
        read_file(written(tmp_path, "file", content))


def test_results_that_were_appended_to_one_file_are_as_files(tmp_path):
    text = "\ufeff" + "\n".join(json.dumps(vllm_result(num)) for num in AT_A_TIME)
    assert_costs(read_file(written(tmp_path, "appended.json", text)))


def test_a_bound_that_cannot_be_reached_is_none(tmp_path):
    found = read_file(written(tmp_path, "free.json", vllm_result(2, max_concurrency=10**9)))
    assert found.windows[0].num_running == 40


@pytest.mark.parametrize(
    "body", [{}, {"data": None}, {"data": {"result": [1]}}, {"data": {"result": [{"values": [1]}]}}]
)
async def test_what_is_no_prometheus_is_said_in_one_line(body):
    async def answer(request):
        return web.json_response({"status": "success", **body})

    app = web.Application()
    app.router.add_get("/api/v1/query_range", answer)
    async with TestServer(app) as server:
        with pytest.raises(FormatError, match="does not answer as Prometheus does"):
            await read_prometheus(str(server.make_url("")).rstrip("/"), None)


def test_files_of_two_models_are_refused():
    means = [SeenMeans(10, 10, 0.1, 0.01, 1.0)]
    with pytest.raises(FormatError, match="several models, a, b"):
        joined([of_means("x", means, "a", 1), of_means("y", means, "b", 1)])


def test_too_little_is_said():
    with pytest.raises(FormatError, match="too little to fit costs to"):
        fit_published(Published("nothing", [], []))
    uncounted = of_means("x", [SeenMeans(0, 10, 0.1, 0.01, 1.0)], "", 1)
    with pytest.raises(FormatError, match="and lengths of prompts"):
        fit_published(uncounted)


def test_minutes_of_prometheus():
    key, idle = ("gpu-1:8000", 60.0), ("gpu-1:8000", 120.0)
    found = {
        "step_s": {key: 0.025, idle: 0.02},
        "ttft_s": {key: 0.2},
        "prompts": {key: 800.0},
        "answers": {key: 160.0},
        "requests": {key: 4.0},
        "running": {key: 4.4},
    }
    [window], [first], num_requests = windows_of(found)
    assert (window.num_running, window.prompt_tokens, window.step_s) == pytest.approx((4.0, 20.0, 0.025))
    assert (first.num_input, first.num_before, num_requests) == (200.0, pytest.approx(3.4), 240)
