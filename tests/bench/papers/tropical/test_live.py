"""Tropical's policies on a live mesh: who serves what when, on which engines, and how attainment is counted."""

from collections import Counter
from random import Random

import pytest

from bench.live.agreement import Latency
from bench.papers.live import sendings_of
from bench.papers.tropical.live.__main__ import SIDES, same_routes, trials
from bench.papers.tropical.live.run import Run, Seen, attained
from bench.papers.tropical.live.setting import (
    FLEETS,
    INPUT,
    OUTPUT,
    POLICIES,
    made_up_lengths,
    make_trace,
    make_turns,
    promised,
)
from engines.costs.linear import prefill_s
from engines.costs.profiles import load_profile
from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.control import Role
from simulation.loads.trace_request import TraceRequest

SERVICE = ServiceSpec("chat", "hf:org/name", Slo(1.0, 0.1, 0.9))
PROFILE = load_profile("a100-llama2-70b-tp4")
MEASURED, _ = SIDES


def test_each_policy_gets_each_trace_once_and_is_first_in_turn_with_other_tokens():
    turns = list(make_turns(made_up_lengths(Random(0)), [1.0, 2.0, 3.0], 2, 3))
    assert set(Counter((turn.policy, tuple(turn.trace)) for turn in turns).values()) == {1}
    assert len(turns) == len({turn.seed for turn in turns}) == len(POLICIES) * 3 * 2
    assert [turn.policy for turn in turns[:: len(POLICIES)]] == list(POLICIES)


def test_policies_that_do_not_split_get_engines_that_are_alike(tmp_path):
    for policy, fleet in FLEETS.items():
        roles = [engine.role for engine in fleet.write(tmp_path, SERVICE).engines]
        alike = policy in ("colocated", "chunked")
        assert roles == [Role.MULTIPLEX if alike else Role.PREFILL, Role.MULTIPLEX]


def test_made_up_lengths_stay_within_bounds_and_are_skewed():
    lengths = made_up_lengths(Random(0))
    assert all(INPUT.least <= one.num_input <= INPUT.most for one in lengths)
    assert all(OUTPUT.least <= one.num_output <= OUTPUT.most for one in lengths)
    inputs = sorted(one.num_input for one in lengths)
    assert sum(inputs) / len(inputs) > 1.2 * inputs[len(inputs) // 2]


def test_each_request_is_promised_five_times_its_own_prefill_and_the_same_time_a_token():
    pool = promised(made_up_lengths(Random(0))[:20], PROFILE)
    assert [one.slo_ttft_s for one in pool] == [
        pytest.approx(5 * prefill_s(PROFILE.prefill, o.num_input)) for o in pool
    ]
    assert len({one.slo_tpot_s for one in pool}) == 1


def test_the_same_requests_arrive_at_another_rate():
    pool = made_up_lengths(Random(0))
    slow, fast = make_trace(pool, 1.0, 20, seed=3), make_trace(pool, 2.0, 20, seed=3)
    assert len(slow) == 20
    for one, other in zip(slow, fast, strict=True):
        assert (one.num_input, one.num_output) == (other.num_input, other.num_output)
        assert one.at_s == pytest.approx(2 * other.at_s)


def test_prompts_of_two_turns_share_no_beginning():
    trace = make_trace(promised(made_up_lengths(Random(0)), PROFILE), 1.0, 20, seed=3)
    one, other = sendings_of(trace, Random("a")), sendings_of(trace, Random("b"))
    assert [len(sending.prompt) for sending in one] == [len(sending.prompt) for sending in other]
    assert all(a.prompt[:16] != b.prompt[:16] for a, b in zip(one, other, strict=True))
    assert [sending.slo_ttft_s for sending in one] == [request.slo_ttft_s for request in trace]


# --- attainment -------------------------------------------------------------------------------------------------------

REQUEST = TraceRequest(0.0, 100, 10, slo_ttft_s=1.0, slo_tpot_s=0.1)
IN_TIME, LATE, SLOW, OF_ONE_TOKEN = Latency(1.0, 0.1, 2), Latency(1.1, 0.1, 2), Latency(1, 0.2, 3), Latency(1, None, 1)
HERE, THERE = ("rule", "first", "second"), ("rule", "second", "second")


def make_run(rate, latencies, routes=(), simulated_routes=()):
    """One request for each latency; None: refused."""
    seen = Seen({i: one for i, one in enumerate(latencies) if one is not None}, dict(enumerate(routes)))
    simulated = Seen({}, dict(enumerate(simulated_routes)))
    return Run("policy", rate, [REQUEST] * len(latencies), seen, simulated, 0.0, 0.0)


def test_attainment_counts_both_slos_of_all_requests():
    run = make_run(1.0, [IN_TIME, LATE, SLOW, None, OF_ONE_TOKEN])
    assert attained([(run.requests, run.measured)]) == pytest.approx(0.4)


def test_requests_of_one_rate_count_alike_whatever_run_they_are_of():
    runs = [make_run(2.0, [LATE]), make_run(1.0, [IN_TIME]), make_run(2.0, [IN_TIME] * 3)]
    assert [(trial.rate, trial.attainment) for trial in trials(runs, MEASURED)] == [(1.0, 1.0), (2.0, 0.75)]


def test_a_request_that_is_refused_on_both_sides_was_predicted():
    run = make_run(1.0, [IN_TIME, IN_TIME, None, None], [HERE, HERE], [HERE, THERE])
    assert same_routes([run]) == 0.75
