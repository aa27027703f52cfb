"""Simulated beside measured latencies."""

import pytest
from rich.console import Console

from bench.live.agreement import Latency, agreement_table, agreements

MEASURED = {f"r{number}": Latency(0.1 * number, 0.05, 1.0 + number) for number in range(1, 101)}


def scaled(factor: float) -> dict[str, Latency]:
    return {
        name: Latency(factor * one.ttft_s, factor * (one.tpot_s or 0.0), factor * one.e2e_s)
        for name, one in MEASURED.items()
    }


def test_all_a_tenth_too_slow_is_an_error_of_a_tenth_everywhere():
    for one in agreements(MEASURED, scaled(1.1)):
        assert [one.error(statistic) for statistic in one.statistics] == pytest.approx([0.1] * 4)
        assert one.each == pytest.approx([0.1] * len(MEASURED))


def test_only_requests_that_both_have_count():
    simulated = scaled(1.0)
    del simulated["r1"]
    simulated["stranger"] = Latency(99.0, 99.0, 99.0)
    assert all(len(one.each) == len(MEASURED) - 1 for one in agreements(MEASURED, simulated))


def test_answers_of_one_token_have_no_tpot():
    short = {"r1": Latency(0.1, None, 0.1)}
    assert [one.metric for one in agreements(short, short)] == ["TTFT", "end to end"]


def test_errors_keep_their_sign_in_the_table():
    console = Console(width=120)
    with console.capture() as captured:
        console.print(agreement_table("halved", agreements(MEASURED, scaled(0.5))))
    assert captured.get().count("-50.0%") == 3 * 4
