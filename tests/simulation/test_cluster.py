"""Whole simulations: the product's dispatchers and engine cores in virtual time."""

from dataclasses import replace
from random import Random

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from mesh.topology.schema import Slo
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost
from router.history.records import Outcome
from router.policies.registry import policies
from simulation.faults.faults import Loss
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.play import OpenPlay
from simulation.loads.trace_request import TraceRequest
from simulation.reports.summary import summarize
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, pair, run, simulation, topology

LENGTHS = [TraceRequest(0.0, 1000, 120), TraceRequest(0.0, 300, 40), TraceRequest(0.0, 3000, 60)]
LATENCY_S = 2e-4
FOUR = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "mux-0": Role.MULTIPLEX, "mux-1": Role.MULTIPLEX}


def poisson(rate, duration_s, process=Process.POISSON, seed=1):
    return list(synthesize(LENGTHS, Arrivals(rate, process), duration_s, Random(seed)))


def test_one_request_takes_what_arithmetic_says():
    """Colocated on one engine: a message there, the prefill, a message back; then decode steps of one request."""
    profile = Profile()
    [record] = run(topology({"only": Role.MULTIPLEX}, "colocated"), [TraceRequest(0.0, 1000, 50)])
    first_s = 2 * LATENCY_S + prefill_s(profile.prefill, 1000)
    # The step that follows a token at position n attends to the n + 1 tokens up to it.
    steps_s = [decode_step_s(profile.decode, 1, context) for context in range(1001, 1050)]
    assert record.outcome is Outcome.FINISHED
    assert record.ttft_s == pytest.approx(first_s, rel=1e-6)
    assert record.tpot_s == pytest.approx(sum(steps_s) / 49, rel=1e-6)
    assert record.e2e_s == pytest.approx(first_s + sum(steps_s), rel=1e-6)


def test_a_long_prompt_is_computed_in_chunks():
    profile = Profile()
    [record] = run(topology({"only": Role.MULTIPLEX}, "colocated", chunk_tokens=400), [TraceRequest(0.0, 1000, 1)])
    chunks_s = (prefill_s(profile.prefill, count, before) for count, before in ((400, 0), (400, 400), (200, 800)))
    assert record.ttft_s == pytest.approx(2 * LATENCY_S + sum(chunks_s), rel=1e-6)
    assert record.tpot_s is None


def test_a_handed_over_request_waits_for_its_kv():
    """The second token comes after the blocks of 1000 tokens have been fetched at 25 GB/s."""
    profile = Profile()
    [record] = run(pair("disaggregated"), [TraceRequest(0.0, 1000, 2)])
    assert (record.prefill_engine, record.decode_engine) == ("prefill", "decode")
    num_messages = 63  # of 8 MiB: two blocks would be more
    copy_s = 63 * 16 * profile.kv_bytes_per_token / 25e9 + num_messages * 1e-4
    step_s = decode_step_s(profile.decode, 1, 1001)
    messages_s = 2 * LATENCY_S  # Blocks and Commit travel together; then the token does
    assert record.tpot_s == pytest.approx(copy_s + step_s + messages_s - LATENCY_S, rel=1e-3)


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("policy", ["round_robin", "tropical", "elastic"])
def test_coasting_changes_nothing(policy, scarce):
    profile = Profile(kv_memory_bytes=500 * 16 * 327_680) if scarce else Profile()
    trace = poisson(10.0, 4.0)
    exact, coasting = (
        {record.id: record for record in run(topology(FOUR, policy), trace, profile=profile, coasts=coasts)}
        for coasts in (False, True)
    )
    for id_, one in exact.items():
        other = coasting[id_]
        placed = one.outcome, one.rule, one.prefill_engine, one.decode_engine, one.attempts
        assert placed == (other.outcome, other.rule, other.prefill_engine, other.decode_engine, other.attempts)
        assert other.e2e_s == pytest.approx(one.e2e_s, rel=1e-9)
        assert other.ttft_s == (None if one.ttft_s is None else pytest.approx(one.ttft_s, rel=1e-9))


@pytest.mark.parametrize("limits", [{"max_running": 3}, {"max_running": 128}])
def test_coasting_changes_nothing_where_many_wait(limits):
    """For a place, or for memory: steps until one ends are passed all the same."""
    profile = Profile(kv_memory_bytes=(500 if limits["max_running"] > 3 else 50_000) * 16 * 327_680)
    trace = [replace(one, num_output=4 * one.num_output) for one in poisson(12.0, 3.0)]
    what, found = topology({"only": Role.MULTIPLEX}, "colocated", slo=Slo(1e3, 1e3), **limits), []
    for coasts in (False, True):
        sim, records = simulation(what, profile=profile, coasts=coasts), []
        sim.run(SERVICE, trace, records.append)
        found.append((sim.kernel.num_events, {record.id: record for record in records}))
    (num_steps, exact), (num_events, coasting) = found
    assert num_events < num_steps / 2
    for id_, one in exact.items():
        assert coasting[id_].e2e_s == pytest.approx(one.e2e_s, rel=1e-9)
        assert coasting[id_].ttft_s == pytest.approx(one.ttft_s, rel=1e-9)


def test_coasting_engines_are_not_taken_for_stuck_ones():
    """Steps of 0.4 s: 256 tokens, held back, would be a silence for which gateways give engines up."""
    slow = Profile(decode=DecodeCost(0.4, 0.0, 0.0))
    exact, coasting = (
        run(topology({"only": Role.MULTIPLEX}, "colocated"), [TraceRequest(0.0, 100, 400)], profile=slow, coasts=coasts)
        for coasts in (False, True)
    )
    assert [record.attempts for record in exact + coasting] == [1, 1]
    assert coasting[0].e2e_s == pytest.approx(exact[0].e2e_s, rel=1e-9)


def test_the_same_seed_gives_the_same_run():
    trace = poisson(6.0, 8.0)
    runs = [run(pair("power_of_two"), trace, seed=seed, noise=0.1) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("policy", sorted(policies()))
def test_every_request_ends_exactly_once_and_nothing_is_left(policy):
    what = topology(FOUR, policy, slo=Slo(1.0, 0.1), num_gateways=2)
    sim, records, trace = simulation(what, noise=0.05), [], poisson(20.0, 1.0, Process.BURST)
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)


def test_scarce_memory_preempts_and_still_ends_everything():
    profile = Profile(kv_memory_bytes=400 * 16 * 327_680)
    records = run(pair("colocated"), poisson(4.0, 10.0), profile=profile)
    assert all(record.outcome is Outcome.FINISHED for record in records)


def test_a_prompt_that_fits_nowhere_fails_at_once():
    profile = Profile(kv_memory_bytes=10 * 16 * 327_680)
    [record] = run(pair(), [TraceRequest(0.0, 1000, 2)], profile=profile)
    assert record.outcome is Outcome.FAILED
    assert "the largest KV pool holds 160" in record.reason


def test_equal_beginnings_are_found_in_the_cache():
    trace = [TraceRequest(0.0, 1024, 5, (1, 2)), TraceRequest(10.0, 1024, 5, (1, 3))]
    first, second = run(topology({"only": Role.MULTIPLEX}, "colocated"), trace)
    assert (first.cached_tokens, second.cached_tokens) == (0, 512)
    assert second.ttft_s < 0.7 * first.ttft_s


def test_tropical_beats_strict_disaggregation_in_ttft_under_overload():
    trace = poisson(8.0, 30.0)
    summaries = {policy: summarize(policy, run(pair(policy), trace), None) for policy in ("tropical", "disaggregated")}
    tropical, disaggregated = summaries["tropical"], summaries["disaggregated"]
    assert tropical.ttft.percentile(90) < 0.8 * disaggregated.ttft.percentile(90)
    assert tropical.attainment > disaggregated.attainment


@each_seed(2, most=6)
def test_lost_messages_lose_no_request(seed):
    everybody = ("prefill", "decode", "gateway-0")
    faults = [Loss(0.02, everybody, everybody)]
    records = run(pair("disaggregated", slo=Slo(5.0, 0.1)), poisson(2.0, 15.0), faults=faults, seed=seed)
    assert all(record.outcome is Outcome.FINISHED for record in records)


@each_seed(2, most=5)
def test_engines_are_known_when_the_first_requests_come_though_statuses_are_rare(seed):
    what = replace(
        topology({"one": Role.MULTIPLEX, "two": Role.MULTIPLEX}, "least_loaded"),
        timing=Timing(heartbeat_s=10.0, lease_s=60.0),
    )
    records = run(what, [TraceRequest(0.1 * number, 100, 4) for number in range(10)], seed=seed)
    assert all(record.queued_s < 0.01 for record in records)


def test_it_tells_the_time_while_nothing_ends():
    told: list[float] = []
    trace = [TraceRequest(0.0, 10, 2), TraceRequest(1000.0, 10, 2)]
    simulation(pair()).play(SERVICE, OpenPlay(trace), lambda record: None, told.append)
    assert len([at_s for at_s in told if 10 < at_s < 990]) == 16
