"""Simulated beside measured latencies."""

import pytest
from rich.console import Console

from bench.fidelity.agreement import METRICS, Latency, agreement_table, pairs, statistics_of

MEASURED = {f"r{number}": Latency(0.1 * number, 0.05, 1.0 + number) for number in range(1, 101)}


def scaled(factor: float) -> dict[str, Latency]:
    return {
        name: Latency(factor * one.ttft_s, factor * (one.tpot_s or 0.0), factor * one.e2e_s)
        for name, one in MEASURED.items()
    }


def test_all_a_tenth_too_slow_is_a_tenth_more_in_every_statistic():
    for metric in METRICS:
        real, modelled = statistics_of(pairs(MEASURED, scaled(1.1), metric))
        assert list(modelled / real) == pytest.approx([1.1] * 4)


def test_only_requests_that_both_have_count():
    simulated = scaled(1.0)
    del simulated["r1"]
    simulated["stranger"] = Latency(99.0, 99.0, 99.0)
    assert all(pairs(MEASURED, simulated, metric).shape == (2, len(MEASURED) - 1) for metric in METRICS)


def test_answers_of_one_token_have_no_tpot():
    short = {"r1": Latency(0.1, None, 0.1)}
    assert [pairs(short, short, metric).shape for metric in METRICS] == [(2, 1), (2, 0), (2, 1)]
    assert agreement_table("short", short, short).row_count == 2 * 3


def test_errors_keep_their_sign_in_the_table():
    console = Console(width=120)
    with console.capture() as captured:
        console.print(agreement_table("halved", MEASURED, scaled(0.5)))
    assert captured.get().count("-50.0%") == 3 * 4
