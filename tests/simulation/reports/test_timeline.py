import pytest

from engines.scheduling.scheduler import Share
from engines.scheduling.step import Step
from simulation.faults.faults import Hang, Kill
from simulation.loads.trace_request import TraceRequest
from simulation.reports.timeline import FINEST_S, MAX_BINS, Activity, Lane, Timeline, activity_of
from tests.simulation.small import SERVICE, Profile, pair, simulation


def seconds(lane, activity):
    return sum(lane.seconds[activity])


def test_bins_hold_what_fell_into_them():
    lane = Lane(0.0)
    lane.begin(0.5 * FINEST_S, Activity.DECODE, 4, 0.2)
    lane.end(2.25 * FINEST_S, 0.2)
    assert list(lane.seconds[Activity.DECODE][:4]) == pytest.approx([0.5 * FINEST_S, FINEST_S, 0.25 * FINEST_S, 0.0])
    assert sum(lane.batch_s) == pytest.approx(4 * 1.75 * FINEST_S)


@pytest.mark.parametrize("span_s", [1.0, 100.0, 20_000.0])
def test_however_long_a_run_is_the_bins_suffice_and_nothing_is_lost(span_s):
    lane, now = Lane(0.0), 0.0
    lane.begin(0.0, Activity.PREFILL, 1, 0.5)
    while now < span_s:
        lane.begin(now, Activity.PREFILL, 1, 0.5)
        now += span_s / 500
        lane.end(now, 0.5)
        now += span_s / 500
    assert len(lane.batch_s) == MAX_BINS
    assert seconds(lane, Activity.PREFILL) == pytest.approx(span_s / 2, rel=0.01)
    assert sum(lane.kv_s) == pytest.approx(0.5 * now, rel=0.02)


def test_lanes_are_aligned():
    timeline = Timeline(0.0)
    timeline.lanes = {"short": Lane(0.0), "long": Lane(0.0)}
    for lane, end_s in zip(timeline.lanes.values(), (5.0, 500.0), strict=True):
        lane.begin(0.0, Activity.DECODE, 1, 0.0)
        lane.end(end_s, 0.0)
    bin_s = timeline.align()
    assert {lane.bin_s for lane in timeline.lanes.values()} == {bin_s}
    assert seconds(timeline.lanes["short"], Activity.DECODE) == pytest.approx(5.0)


def run(faults=(), coasts=False):
    timeline = Timeline(-1.0)
    trace = [TraceRequest(0.2 * number, 1000, 60) for number in range(10)]
    records = []
    what = pair("disaggregated")
    simulation(what, timeline=timeline, faults=faults, coasts=coasts).run(SERVICE, trace, records.append)
    return timeline, records


@pytest.mark.parametrize("coasts", [False, True])
def test_what_engines_compute_is_seen(coasts):
    timeline, records = run(coasts=coasts)
    prefill, decode = timeline.lanes["prefill"], timeline.lanes["decode"]
    assert seconds(prefill, Activity.PREFILL) == pytest.approx(10 * (0.015 + 1000 * (1.6e-4 + 500 * 1e-9)), rel=1e-6)
    assert seconds(prefill, Activity.DECODE) == 0
    longest_s = max(record.e2e_s - record.ttft_s for record in records)
    assert longest_s * 0.99 < seconds(decode, Activity.DECODE) <= timeline.end_s
    assert 1 < max(decode.batch_s) / decode.bin_s <= 10
    assert 0 < sum(decode.kv_s) < timeline.end_s * 10 * 70 * 16 * 327_680 / Profile().kv_memory_bytes


def test_deaths_and_hangs_are_marked():
    timeline, _ = run([Kill("decode", 0.5, 0.7), Hang("prefill", 0.6, 0.4)])
    decode, prefill = timeline.lanes["decode"], timeline.lanes["prefill"]
    assert [(mark.at_s, mark.event) for mark in decode.marks] == [(0.5, "killed"), (1.2, "restarted")]
    assert [(mark.at_s, mark.event) for mark in prefill.marks] == [(0.6, "hung")]
    assert seconds(decode, Activity.DOWN) == pytest.approx(0.7)
    assert seconds(prefill, Activity.HUNG) == pytest.approx(0.4)


def test_a_timeline_changes_nothing():
    records = []
    trace = [TraceRequest(0.2 * number, 1000, 60) for number in range(10)]
    simulation(pair("disaggregated"), coasts=False).run(SERVICE, trace, records.append)
    assert run()[1] == records


def test_activities():
    decode, prompt = Share(None, 1), Share(None, 2)

    def step(*shares):
        return Step(None, shares, [share for share in shares if share is prompt], 0.0)

    assert activity_of(step(prompt)) is Activity.PREFILL
    assert activity_of(step(decode)) is Activity.DECODE
    assert activity_of(step(decode, prompt)) is Activity.MIXED
