"""The host's time in iterations whose kernels were measured."""

import pytest

from engines.costs.host import HostCost, with_host
from engines.costs.presets import load_preset
from engines.costs.step_cost import StepLoad

HOST = HostCost(per_step_s=0.002, per_request_s=0.0001)
KERNELS = load_preset("h100-qwen3-32b-tp2")
HOSTED = with_host(KERNELS, HOST)


def added_s(load: StepLoad) -> float:
    return sum(HOSTED.cost.parts(load)) - sum(KERNELS.cost.parts(load))


@pytest.mark.parametrize(
    ("load", "num_requests"),
    [
        (StepLoad((), 1, 100), 1),
        (StepLoad((), 64, 6400), 64),
        (StepLoad([(512, 0)], 0, 0), 1),
        (StepLoad([(512, 0), (512, 0)], 0, 0), 2),
        (StepLoad([(2000, 0)], 48, 4800), 49),
    ],
)
def test_an_iteration_takes_the_hosts_time_for_each_request_in_it(load, num_requests):
    assert added_s(load) == pytest.approx(HOST.per_step_s + num_requests * HOST.per_request_s, abs=1e-9)


@pytest.mark.parametrize("name", ["h100-qwen3-32b-tp2", "h100-qwen3-32b-fp8-kv8-tp4-trtllm"])  # a table, and a line
def test_an_iteration_with_a_prompt_takes_as_long_as_its_layers_are_launched(name):
    kernels = load_preset(name)
    hosted = with_host(kernels, HostCost(0.0, 0.0, prompt_layer_s=0.001))
    assert kernels.num_layers == 64
    assert sum(hosted.cost.parts(StepLoad([(128, 0)], 0, 0))) == pytest.approx(0.064, rel=0.01)
    for load in (StepLoad((), 64, 6400), StepLoad([(8192, 0)], 0, 0)):
        assert sum(hosted.cost.parts(load)) == pytest.approx(sum(kernels.cost.parts(load)), rel=0.01)


def test_the_host_is_added_once():
    with pytest.raises(ValueError, match="the host's time is in profile h100-qwen3-32b-tp2 already"):
        with_host(HOSTED, HOST)
