"""Steps of engines that share a machine."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from mesh.topology.schema import EngineSpec, Role
from simulation.engines.hardware import StepWork
from simulation.engines.host import SPEEDUP_EXPONENT, Host
from simulation.engines.physics import Physics
from simulation.kernel import Kernel
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import pair, run

ENGINE = EngineSpec("e", Role.MULTIPLEX, ("s",))


def ends(*steps: tuple[float, float, float], most: int = 1) -> list[float]:
    """When each step, (start, seconds alone, slowdown), is done. Each is of an engine of its own, of one thread."""
    return [ended_at for ended_at, _ in _ended(steps, most)]


def had_extra_threads(*steps: tuple[float, float, float], most: int = 1) -> list[bool]:
    return [had_extra for _, had_extra in _ended(steps, most)]


def _ended(steps: Sequence[tuple[float, float, float]], most: int) -> list[tuple[float, bool]]:
    kernel = Kernel()
    host = Host(kernel, [replace(ENGINE, id=str(number), max_threads=most) for number in range(len(steps))])
    ended: dict[int, tuple[float, bool]] = {}
    for number, (start_s, alone_s, slowdown) in enumerate(steps):
        then = partial(lambda number, had_extra: ended.update({number: (kernel.now, had_extra)}), number)
        kernel.at(start_s, host.compute, str(number), StepWork(alone_s, slowdown), then)
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


def test_idle_cores_of_others_are_used_until_they_are_needed():
    # Alone the first does 1.68 s of its 3 in the first second; then both have one thread, and the second ends at 1.5.
    faster = 2**SPEEDUP_EXPONENT
    left_s = 3.0 - faster - 0.5
    assert ends((0.0, 3.0, 1.0), (1.0, 0.5, 1.0), most=2) == pytest.approx([1.5 + left_s / faster, 1.5])
    assert had_extra_threads((0.0, 3.0, 1.0), (1.0, 0.5, 1.0), most=2) == [True, False]
    assert had_extra_threads((0.0, 3.0, 1.0), (1.0, 0.5, 1.0)) == [False, False]


def test_a_lone_prompt_of_a_mesh_is_sooner_with_idle_threads():
    topology = pair()
    faster = replace(topology, engines=tuple(replace(engine, max_threads=2) for engine in topology.engines))
    [alone], [one] = run(topology, [TraceRequest(0.0, 4000, 40)]), run(faster, [TraceRequest(0.0, 4000, 40)])
    assert one.ttft_s == pytest.approx(alone.ttft_s / 2**SPEEDUP_EXPONENT, rel=0.02)


def test_engines_that_share_a_host_are_slower_only_when_both_compute():
    trace = [TraceRequest(0.0, 4000, 40), TraceRequest(1.5, 4000, 40)]
    apart, shared = run(pair(), trace), run(pair(), trace, physics=Physics(shared_decode=2.0, shared_prefill=1.5))
    for alone, beside in zip(apart, shared, strict=True):
        assert alone.ttft_s is not None
        assert beside.ttft_s is not None
        assert alone.tpot_s is not None
        assert beside.tpot_s is not None
        assert alone.ttft_s <= beside.ttft_s + 1e-9
        assert alone.tpot_s <= beside.tpot_s + 1e-9  # sums of steps are rounded in another order
        assert beside.tpot_s <= 2 * alone.tpot_s
    lonely = TraceRequest(0.0, 4000, 40)
    [one], [other] = run(pair(), [lonely]), run(pair(), [lonely], physics=Physics(shared_decode=2.0))
    assert one.e2e_s == pytest.approx(other.e2e_s)
