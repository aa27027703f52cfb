"""Fits of the host to closed loops: what made the loops is found again."""

from dataclasses import replace

import msgspec
import pytest

from bench.fidelity.silicon.__main__ import Judged, judge, simulate_all
from bench.fidelity.silicon.fit import fit, weighted_median
from bench.fidelity.silicon.runs import Latencies, Lengths, Loop, SiliconRun, simulate
from engines.costs.serving_systems import serving_system
from mesh.jobs.runner import JobPlace

SYSTEM = serving_system("vllm-0.12")
TRUE = msgspec.structs.replace(SYSTEM, per_step_ms=3.0, per_request_ms=0.1, request_ms=20.0)
HERE = JobPlace(1)


def measured(concurrency: int, tensor_parallel: int) -> SiliconRun:
    run = SiliconRun(
        "vllm-0.12", "h100", "qwen3-32b", tensor_parallel, 256, 64, concurrency, 0.0, 0.0, Lengths(spread=2)
    )
    latencies = simulate(Loop(run, TRUE))
    return replace(run, ttft_s=latencies.ttft_s, tpot_s=latencies.tpot_s)


@pytest.fixture(scope="module")
def simulated():
    runs = [measured(concurrency, devices) for concurrency in (1, 4, 16) for devices in (2, 4, 8)]
    return simulate_all(runs, SYSTEM, HERE)


def test_a_fit_finds_the_host_that_made_the_runs(simulated):
    fitted = fit(SYSTEM, simulated)
    assert fitted.per_step_ms == pytest.approx(3.0, rel=0.1)
    assert fitted.per_request_ms == pytest.approx(0.1, rel=0.2)
    assert fitted.request_ms == pytest.approx(20.0, rel=0.2)


def test_each_run_is_predicted_by_a_fit_that_never_saw_its_like(simulated):
    judged = judge(simulated, SYSTEM, "tp", HERE)
    assert [one.run for one in judged] == [one.run for one in simulated]
    assert {one.left_out for one in judged} == {"TP 2", "TP 4", "TP 8"}
    assert max(abs(one.tpot_error) for one in judged) < 0.1


def test_errors_are_relative_to_what_was_measured():
    run = replace(SiliconRun("vllm-0.12", "h100", "qwen3-32b", 2, 1, 1, 1, 0.1, 0.02, Lengths()))
    one = Judged("all", run, Latencies(ttft_s=0.11, tpot_s=0.019))
    assert (one.ttft_error, one.tpot_error) == (pytest.approx(0.1), pytest.approx(-0.05))


def test_the_weighted_median_is_where_half_of_the_weight_has_passed():
    assert weighted_median([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]) == 2.0
    assert weighted_median([(3.0, 5.0), (1.0, 1.0), (2.0, 1.0)]) == 3.0


def test_a_device_that_no_fit_saw_has_the_host_of_the_product(simulated):
    judged = judge(simulated, SYSTEM, "device", HERE)
    assert {one.left_out for one in judged} == {"h100"}
    assert [one.predicted for one in judged] == [one.base for one in simulated]


def test_a_fit_finds_how_long_a_layer_takes_to_be_launched():
    system = serving_system("trtllm-1.0")
    true = msgspec.structs.replace(system, per_step_ms=1.0, per_request_ms=0.02, prompt_layer_ms=1.0)
    runs = [
        SiliconRun("trtllm-1.0", "h100", "llama3-8b", 8, 512, num_output, concurrency, 0.0, 0.0, Lengths(spread=2))
        for num_output in (32, 128)
        for concurrency in (1, 4, 16)
    ]
    made = [(run, simulate(Loop(run, true))) for run in runs]
    measured = [replace(run, ttft_s=latencies.ttft_s, tpot_s=latencies.tpot_s) for run, latencies in made]
    fitted = fit(system, simulate_all(measured, system, HERE))
    assert fitted.prompt_layer_ms == pytest.approx(1.0, rel=0.2)
