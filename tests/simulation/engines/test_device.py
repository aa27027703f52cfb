"""Processes with quotas of a device's SMs."""

from functools import partial

import pytest

from simulation.engines.device import ENOUGH_SMS, SharedDevice, bandwidth
from simulation.engines.hardware import StepWork
from simulation.engines.physics import Physics, SmQuota
from simulation.kernel import Kernel
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import pair, run

PROMPT, DECODE = StepWork(1.0, has_prompts=True), StepWork(1.0)


def ends(quotas: list[SmQuota], *works: StepWork) -> list[float]:
    """When each step is done. All begin at once, each on an engine of its own."""
    kernel, ended = Kernel(), dict[int, float]()
    device = SharedDevice(kernel, {str(number): quota for number, quota in enumerate(quotas)})
    for number, work in enumerate(works):
        then = partial(lambda number, _: ended.update({number: kernel.now}), number)
        kernel.at(0.0, device.compute, str(number), work, then)
    kernel.run()
    return [ended[number] for number in range(len(works))]


def test_prompts_whose_quotas_fit_do_not_slow_each_other():
    assert ends([SmQuota(0.7, 0.7), SmQuota(0.3, 0.3)], PROMPT, PROMPT) == pytest.approx([1.0, 1.0])


def test_prompts_that_want_more_sms_than_there_are_get_parts_in_proportion():
    assert ends([SmQuota(0.9, 0.3)] * 2, PROMPT, PROMPT) == pytest.approx([1.8, 1.8])


def test_decodes_share_the_bandwidth_that_their_sms_could_use():
    assert ends([SmQuota(0.9, 0.4)] * 2, DECODE, DECODE) == pytest.approx([2.0, 2.0])
    assert ends([SmQuota(0.9, 0.1)] * 2, DECODE, DECODE) == pytest.approx([1.0, 1.0])
    assert bandwidth(ENOUGH_SMS / 2) == 0.5


def test_a_decode_beside_a_prompt_has_what_is_left_of_the_sms():
    # 1.2 of the SMs are wanted: the decode reads at 0.3 / 1.2 of them instead of at 0.3, until it is done.
    assert ends([SmQuota(0.9, 0.3)] * 2, PROMPT, DECODE) == pytest.approx([1.2, 1.2])


def test_engines_on_one_device_are_slower_only_when_both_compute():
    quotas = {engine.id: SmQuota(1.0, 1.0) for engine in pair().engines}
    trace = [TraceRequest(0.01 * number, 4000, 40) for number in range(6)]
    apart, shared = run(pair(), trace), run(pair(), trace, physics=Physics(sm_quotas=quotas))
    assert max(one.e2e_s for one in shared) > 1.3 * max(one.e2e_s for one in apart)
    [lone], [alone] = run(pair(), trace[:1], physics=Physics(sm_quotas=quotas)), run(pair(), trace[:1])
    assert lone.e2e_s == pytest.approx(alone.e2e_s)
