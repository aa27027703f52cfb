"""Figures against numpy and against what is counted by hand."""

from random import Random

import numpy as np
import pytest

from bench.load.results.goodput import parse_promises
from bench.load.results.measures import Window, most_in_flight, most_tokens_a_second, summarize
from bench.load.results.outcome import Failure, Outcome
from bench.load.results.series import slices
from tests.bench.load.small import failed, outcome

VLLM_KEYS = (  # of vllm bench serve --save-result, vLLM 0.11
    "duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput"
    " output_throughput total_token_throughput max_output_tokens_per_s max_concurrent_requests"
    " mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms mean_tpot_ms median_tpot_ms std_tpot_ms p99_tpot_ms"
    " mean_itl_ms median_itl_ms std_itl_ms p99_itl_ms mean_e2el_ms median_e2el_ms std_e2el_ms p99_e2el_ms"
)


def drawn(seed: int, number: int = 300) -> list[Outcome]:
    random = Random(seed)
    outcomes = []
    for index in range(number):
        due_s, wait_s = random.uniform(0, 50), random.expovariate(2)
        gaps = [random.expovariate(20) for _ in range(random.randint(0, 40))]
        first_s = due_s + wait_s
        last_s = first_s + sum(gaps)
        outcomes.append(
            outcome(
                index,
                due_s=due_s,
                woke_s=due_s,
                sent_s=due_s + wait_s / 2,
                first_s=first_s,
                last_s=last_s,
                ended_s=last_s,
                itls_s=gaps,
                output_tokens=1 + len(gaps),
            )
        )
    return outcomes


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_raw_samples(seed: int):
    outcomes = drawn(seed)
    summary = summarize(outcomes, parse_promises([]), Window.of(outcomes))
    ttfts = [one.first_s - one.due_s for one in outcomes if one.first_s is not None]
    tpots = [sum(one.itls_s) / len(one.itls_s) for one in outcomes if one.itls_s]
    itls = [gap for one in outcomes for gap in one.itls_s]
    e2els = [one.ended_s - one.due_s for one in outcomes]
    for key, values in (("ttft", ttfts), ("tpot", tpots), ("itl", itls), ("e2el", e2els)):
        assert summary[f"mean_{key}_ms"] == pytest.approx(1e3 * np.mean(values))
        assert summary[f"std_{key}_ms"] == pytest.approx(1e3 * np.std(values))
        assert summary[f"median_{key}_ms"] == pytest.approx(1e3 * np.percentile(values, 50))
        for percent in (90, 95, 99):
            assert summary[f"p{percent}_{key}_ms"] == pytest.approx(1e3 * np.percentile(values, percent))
    sent = [one.first_s - one.sent_s for one in outcomes if one.first_s is not None]
    assert summary["p99_ttft_sent_ms"] == pytest.approx(1e3 * np.percentile(sent, 99))
    per_token = [(one.ended_s - one.due_s) / one.output_tokens for one in outcomes]
    assert summary["mean_normalized_latency_ms"] == pytest.approx(1e3 * np.mean(per_token))


def test_rates_are_of_finished_requests_over_the_whole_run():
    outcomes = [outcome(0), outcome(1, ended_s=4.0), failed(Failure.TIMEOUT, 2), failed(Failure.REFUSED, 3, status=429)]
    summary = summarize(outcomes, parse_promises(["ttft:600"]), Window.of(outcomes))
    assert (summary["completed"], summary["failed"], summary["duration"]) == (2, 2, 4.0)
    assert (summary["total_input_tokens"], summary["total_output_tokens"]) == (20, 10)
    assert (summary["request_throughput"], summary["output_throughput"]) == (0.5, 2.5)
    assert summary["total_token_throughput"] == 7.5
    assert (summary["request_goodput"], summary["slo_attainment"]) == (0.5, 0.5)
    assert summary["errors_by_kind"] == {"refused_429": 1, "timeout": 1}


def test_the_keys_of_vllm_are_there_also_when_nothing_was_answered():
    for outcomes in ([outcome()], [failed(Failure.CONNECTION)], []):
        summary = summarize(outcomes, parse_promises([]), Window.of(outcomes))
        assert set(VLLM_KEYS.split()) <= summary.keys()
        assert summary["request_goodput"] is None
    assert summary["mean_ttft_ms"] is None
    assert summary["request_throughput"] == 0.0


def test_what_is_skipped_does_not_count():
    outcomes = [outcome(0), outcome(1, due_s=6.0, first_s=6.5, last_s=7.0, ended_s=7.0)]
    window = Window.of(outcomes[1:], 5.0)
    assert summarize(outcomes[1:], parse_promises([]), window)["request_throughput"] == 0.5


def test_services_have_figures_of_their_own():
    outcomes = [outcome(0), outcome(1, model="other", first_s=1.1), failed(Failure.HTTP, 2, model="other", status=400)]
    summary = summarize(outcomes, parse_promises(["ttft:200"]), Window.of(outcomes))
    services = summary["services"]
    assert isinstance(services, dict)
    assert services["tiny"]["slo_attainment"] == 0.0
    assert (services["other"]["slo_attainment"], services["other"]["failed"]) == (0.5, 1)
    assert services["other"]["errors_by_kind"] == {"http_400": 1}


def test_the_most_in_flight():
    spans = [(0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (2.5, 2.6)]
    assert most_in_flight([outcome(sent_s=begin, ended_s=end) for begin, end in spans]) == 3
    assert most_in_flight([]) == 0


def test_an_event_with_several_tokens_counts_as_many():
    assert most_tokens_a_second([outcome(first_s=1.5, itls_s=[0.1, 0.1], output_tokens=9)]) == 9.0
    assert most_tokens_a_second([outcome(first_s=1.9, itls_s=[0.2], output_tokens=2)]) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_slices_add_up(seed: int):
    outcomes = [*drawn(seed), failed(Failure.BROKEN, 999, due_s=3.0, sent_s=3.0, ended_s=4.0)]
    promises = parse_promises(["ttft:400"])
    found = slices(outcomes, promises)
    assert sum(one.arrived for one in found) == len(outcomes)
    assert sum(one.lost for one in found) == 1
    assert sum(one.kept for one in found) == sum(map(promises.is_kept, outcomes))
    assert sum(one.tokens for one in found) == sum(1 + len(one.itls_s) for one in outcomes if one.first_s is not None)
    busy_s = sum(one.ended_s - one.sent_s for one in outcomes)
    assert sum(one.in_flight * one.width_s for one in found) == pytest.approx(busy_s)
