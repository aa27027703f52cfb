import statistics
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from simulation.loads.arrival_processes import Arrivals, Process
from simulation.loads.rows import TraceError
from simulation.loads.traces import load_lengths
from simulation.loads.workload_lengths import LONGEST, POWER_LAWS, described_lengths


def percentile(lengths, percent):
    return sorted(lengths)[len(lengths) * percent // 100]


# Quantiles of the paper's table 1, which is one sample of 10,000; its power laws' factors vary from sample to sample.
@pytest.mark.parametrize(
    ("size", "quantiles"),
    [
        ("S", {50: 38, 80: 113, 95: 413}),
        ("M", {50: 32, 80: 173, 95: 1288}),
        ("L", {50: 55, 80: 582, 95: 3113}),
    ],
)
def test_power_laws_are_the_papers(size, quantiles):
    inputs = [request.num_input for request in described_lengths(f"llumnix:{size}-S")]
    outputs = [request.num_output for request in described_lengths(f"llumnix:S-{size}")]
    for lengths in (inputs, outputs):
        assert statistics.fmean(lengths) == pytest.approx(POWER_LAWS[size][0], rel=0.02)
        assert max(lengths) <= LONGEST
        assert {percent: percentile(lengths, percent) for percent in quantiles} == pytest.approx(quantiles, rel=0.15)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [("sharegpt", (306, 74, 3388), (500, 487, 1234)), ("burstgpt", (830, 582, 3549), (271, 243, 964))],
)
def test_data_sets_have_the_tables_mean_median_and_p99(name, inputs, outputs):
    requests = described_lengths(f"llumnix:{name}")
    for lengths, (mean, median, p99) in (
        ([request.num_input for request in requests], inputs),
        ([request.num_output for request in requests], outputs),
    ):
        assert statistics.fmean(lengths) == pytest.approx(mean, rel=0.1)
        assert (percentile(lengths, 50), percentile(lengths, 99)) == pytest.approx((median, p99), rel=0.02)


def test_prompts_and_answers_are_independent_and_always_the_same():
    requests = described_lengths("llumnix:L-L")
    assert requests == described_lengths("llumnix:L-L")
    inputs, outputs = [request.num_input for request in requests], [request.num_output for request in requests]
    assert abs(statistics.correlation(inputs, outputs)) < 0.05


def test_they_can_be_named_where_files_can():
    assert load_lengths(Path("llumnix:S-M")) == described_lengths("llumnix:S-M")


@pytest.mark.parametrize("name", ["llumnix:", "llumnix:S", "llumnix:S-X", "llumnix:sharegtp"])
def test_what_is_not_there_is_one_line_that_says_what_is(name):
    with pytest.raises(TraceError, match=r"no such lengths; there are llumnix:sharegpt, .*S, M, L") as caught:
        load_lengths(Path(name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cv", [2.0, 4.0, 8.0])
def test_gamma_arrivals_have_the_variation_that_was_asked_for(cv):
    times = islice(Arrivals(10.0, Process.GAMMA, cv).times(Random("gaps")), 40_000)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, rel=0.1)
