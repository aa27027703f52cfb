"""Whole simulations in which processes die and hang, links break and messages get lost. Many at random: fault runs."""

from collections import Counter
from random import Random

import pytest

from mesh.errors import UserError
from mesh.topology.schema import Slo
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import EngineStatus
from router.history.records import Outcome
from simulation.faults.faults import (
    Copy,
    Delay,
    Duplicate,
    FailSteps,
    Fates,
    Hang,
    Kill,
    Loss,
    Partition,
    Reorder,
    Slow,
    Stall,
)
from simulation.kernel import Kernel
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import SERVICE, assert_all_ended_once, pair, run, simulation, topology

TOUCH = [0.7, 0.85, 0.95, 1.05, 1.3]  # seconds, around the lease of 1 s
TRACE = [TraceRequest(0.05 * number, 300, 60) for number in range(20)]
CALM = Slo(5.0, 0.1)


@pytest.mark.parametrize("for_s", TOUCH)
def test_a_link_that_breaks_for_about_a_lease_delays_requests_by_seconds_only(for_s):
    """Engine and gateway may judge differently whether the other one died."""
    faults = [Partition(("decode", "prefill"), ("gateway-0",), 1.0, for_s)]
    records = run(pair("disaggregated", slo=CALM), TRACE, faults=faults)
    assert all(record.outcome is Outcome.FINISHED for record in records)
    assert max(record.e2e_s for record in records) < 10.0


@pytest.mark.parametrize("policy", ["disaggregated", "tropical", "elastic"])
@pytest.mark.parametrize("role", [Role.MULTIPLEX, Role.DECODE])
def test_prompts_are_computed_where_engines_can_be_reached(policy: str, role: Role):
    """The gateway hears all engines; those that prefill and those that decode do not hear each other for five seconds.

    A request waits for a lease or two, and not until the link is mended.
    """
    what = topology({"prefill": Role.PREFILL, "decode-0": role, "decode-1": role}, policy, slo=CALM)
    trace = [TraceRequest(0.1 * number, 300, 60) for number in range(50)]
    sim, records = simulation(what, faults=[Partition(("prefill",), ("decode-0", "decode-1"), 1.0, 5.0)]), []
    sim.run(SERVICE, trace, records.append)
    assert all(record.outcome is Outcome.FINISHED for record in records)
    assert max(record.ttft_s for record in records) < 2.0
    assert_all_ended_once(sim, records, trace)


def test_requests_of_a_gateway_that_dies_end_and_the_others_go_on():
    what = pair(slo=CALM, num_gateways=2)
    sim, records = simulation(what, faults=[Kill("gateway-0", 1.5, 2.0)]), []
    engines = sim.engines.values()

    def check_that_engines_noticed():
        held = {request.spec.gateway for engine in engines for request in engine.core._requests.values()}
        assert held == {"gateway-1"}

    sim.kernel.at(1.5 + what.timing.lease_s + what.timing.heartbeat_s, check_that_engines_noticed)
    late = [TraceRequest(2.0, 300, 60), TraceRequest(2.1, 300, 60), TraceRequest(5.0, 300, 60)]
    sim.run(SERVICE, [*TRACE, *late], records.append)
    by_id = {record.id: record for record in records}
    early = [by_id[f"r{number}"] for number in range(len(TRACE))]
    assert {record.outcome for record in early[1::2]} == {Outcome.FINISHED}
    failed = [record for record in early[::2] if record.outcome is Outcome.FAILED]
    assert {(record.reason, round(record.arrived_s + record.e2e_s, 6)) for record in failed} == {
        ("its gateway died", 1.5)
    }
    assert all(by_id[f"r{len(TRACE) + number}"].outcome is Outcome.FINISHED for number in range(len(late)))
    assert_all_ended_once(sim, records, [*TRACE, *late])


def test_without_a_gateway_requests_fail_at_once():
    records = run(pair(), [TraceRequest(2.0, 300, 10)], faults=[Kill("gateway-0", 1.0, 5.0)])
    assert [(record.outcome, record.reason, record.e2e_s) for record in records] == [
        (Outcome.FAILED, "no gateway was there", 0.0)
    ]


def test_a_gateway_that_hangs_makes_its_clients_wait_and_gives_nobody_up():
    records = run(pair(slo=CALM), [TraceRequest(0.0, 300, 200)], faults=[Hang("gateway-0", 1.0, 3.0)])
    alone = run(pair(slo=CALM), [TraceRequest(0.0, 300, 200)])
    assert [(record.outcome, record.attempts) for record in records] == [(Outcome.FINISHED, 2)]
    assert alone[0].e2e_s < records[0].e2e_s


def test_a_slow_engine_takes_so_many_times_as_long():
    (alone,), (slow,) = (
        run(pair("colocated"), [TraceRequest(0.0, 1000, 1)], faults=faults)
        for faults in ([], [Slow("prefill", 3.0), Slow("decode", 3.0)])
    )
    assert slow.ttft_s == pytest.approx(3 * alone.ttft_s, rel=0.02)


def test_an_engine_is_as_fast_as_before_when_it_was_slow():
    faults = [Slow("prefill", 7.0, 0.0, 1.0), Slow("decode", 7.0, 0.0, 1.0)]
    (alone,), (later,) = (run(pair("colocated"), [TraceRequest(1.5, 1000, 1)], faults=some) for some in ([], faults))
    assert later.ttft_s == pytest.approx(alone.ttft_s, rel=0.02)


def copies(*faults, num_messages=2000, now=0.0):
    fates = Fates(faults, Kernel(now=now), Random(0), counts := Counter())
    return [fates("a", "b", None) for _ in range(num_messages)], counts


ALL = ("a",), ("b",)


def test_fates_are_as_likely_as_they_say():
    for fault, is_hit in (
        (Loss(0.3, *ALL), lambda copy: len(copy) == 0),
        (Duplicate(0.3, *ALL), lambda copy: len(copy) == 2 and copy[0] == Copy() and not copy[1].keeps_place),
        (Reorder(0.3, *ALL, late_s=2.0), lambda copy: not copy[0].keeps_place and copy[0].late_s <= 2.0),
    ):
        fates, counts = copies(fault)
        num_hit = sum(map(is_hit, fates))
        assert num_hit == counts[type(fault).__name__]
        assert 500 < num_hit < 700
        assert all(copy == (Copy(),) for copy in fates if not is_hit(copy))


def test_delays_keep_the_place_and_add_up():
    fates, _ = copies(Delay(1.0, *ALL), Delay(2.0, *ALL))
    assert all(copy.keeps_place for (copy,) in fates)
    assert 2.5 < max(copy.late_s for (copy,) in fates) < 3.0


@pytest.mark.parametrize("now", [0.9, 3.0])
def test_fates_end_and_concern_those_between_whom_they_are(now):
    assert set(copies(Loss(1.0, *ALL, 1.0, 2.0), now=now)[0]) == {(Copy(),)}
    assert set(copies(Loss(1.0, *ALL, 1.0, 2.0), now=2.9)[0]) == {()}
    assert set(copies(Loss(1.0, ("b",), ("a",)))[0]) == {()}
    assert set(copies(Loss(1.0, ("a",), ("c",)))[0]) == {(Copy(),)}


def states_of(sim, engine):
    """What the engine says of itself, as its gateways hear it, without repetitions."""
    states = []

    def tap(now, event, sender, to, message):
        is_new = isinstance(message, EngineStatus) and (not states or states[-1] is not message.state)
        if event == "heard" and sender.process == engine and is_new:
            states.append(message.state)

    sim.processes.network.tap = tap
    return states


def test_an_engine_whose_step_hangs_says_so_and_goes_on_afterwards():
    sim, records = simulation(pair(slo=CALM), faults=[Stall("decode", 1.5, 4.0)]), []
    states = states_of(sim, "decode")
    sim.run(SERVICE, TRACE, records.append)
    assert states == [ProcessState.READY, ProcessState.STUCK, ProcessState.READY]
    assert_all_ended_once(sim, records, TRACE)


def test_steps_that_fail_now_and_then_end_single_requests_only():
    sim, records = simulation(pair(slo=CALM), faults=[FailSteps("decode", 0.05)]), []
    sim.run(SERVICE, TRACE, records.append)
    assert sim.processes.engines["decode"].num_incarnations == 1
    assert Counter(record.outcome for record in records)[Outcome.FINISHED] > len(TRACE) // 2
    assert_all_ended_once(sim, records, TRACE)


def test_an_engine_whose_steps_all_fail_is_replaced():
    sim, records = simulation(pair(slo=CALM), faults=[FailSteps("decode", 1.0, 1.0, 2.0)]), []
    late = [TraceRequest(8.0, 300, 60), TraceRequest(8.1, 300, 60)]
    sim.run(SERVICE, [*TRACE, *late], records.append)
    assert sim.processes.engines["decode"].num_incarnations > 1
    assert [record.outcome for record in records if record.arrived_s >= 8.0] == [Outcome.FINISHED] * 2
    assert_all_ended_once(sim, records, [*TRACE, *late])


def test_compiled_code_that_faults_cannot_befall_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simulation.faults.processes.is_compiled", lambda _: True)
    with pytest.raises(UserError, match=r"do not run compiled: leave `python -m simulation\.compiled` out"):
        simulation(pair(), faults=[Kill("decode", 1.0)])
