"""Steps of engines that share a machine."""

import pytest

from simulation.engines.host import Host
from simulation.engines.physics import Physics
from simulation.kernel import Kernel
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import pair, run


def ends(*steps: tuple[float, float, float]) -> list[float]:
    """When each step, (start, seconds alone, slowdown), is done."""
    kernel = Kernel()
    host = Host(kernel)
    ended: dict[int, float] = {}
    for number, (start_s, alone_s, slowdown) in enumerate(steps):
        kernel.at(start_s, host.compute, alone_s, slowdown, lambda number: ended.update({number: kernel.now}), number)
    kernel.run()
    return [ended[number] for number in range(len(steps))]


def test_alone_a_step_takes_its_time():
    assert ends((0.0, 1.0, 2.0), (1.0, 1.0, 3.0)) == pytest.approx([1.0, 2.0])


def test_together_each_takes_its_own_slowdown_for_as_long_as_the_other_runs():
    # From 1 to 2.5 both run: the second does its 1 s at 2/3 of the speed, the first 0.75 s at half of it.
    assert ends((0.0, 3.0, 2.0), (1.0, 1.0, 1.5)) == pytest.approx([2.5 + 3.0 - 1.0 - 0.75, 2.5])


def test_a_third_changes_nothing_more():
    assert ends((0.0, 1.0, 2.0), (0.0, 1.0, 2.0), (0.0, 1.0, 2.0)) == pytest.approx([2.0, 2.0, 2.0])


def test_many_that_come_and_go_lose_no_work():
    steps = [(0.1 * number, 0.05 + 0.01 * (number * 7 % 5), 1.0) for number in range(50)]
    assert ends(*steps) == pytest.approx([start_s + alone_s for start_s, alone_s, _ in steps])


def test_engines_that_share_a_host_are_slower_only_when_both_compute():
    trace = [TraceRequest(0.0, 4000, 40), TraceRequest(1.5, 4000, 40)]
    apart, shared = run(pair(), trace), run(pair(), trace, physics=Physics(shared_decode=2.0, shared_prefill=1.5))
    for alone, beside in zip(apart, shared, strict=True):
        assert alone.ttft_s is not None
        assert beside.ttft_s is not None
        assert alone.tpot_s is not None
        assert beside.tpot_s is not None
        assert alone.ttft_s <= beside.ttft_s + 1e-9
        assert alone.tpot_s <= beside.tpot_s <= 2 * alone.tpot_s
    lonely = TraceRequest(0.0, 4000, 40)
    [one], [other] = run(pair(), [lonely]), run(pair(), [lonely], physics=Physics(shared_decode=2.0))
    assert one.e2e_s == pytest.approx(other.e2e_s)
