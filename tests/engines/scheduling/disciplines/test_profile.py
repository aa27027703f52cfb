"""Execution times: what a request counts for on the engines that it ran on, and how they are averaged."""

import random
import statistics

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.step_cost import StepCost
from engines.scheduling.disciplines.profile import PRIOR_WEIGHT, WINDOW, ExecutionTimes, Profiles
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.conftest import MakeSequence
from tests.engines.scheduling.disciplines.serving import Fixed

COST = StepCost(
    PrefillCost(0.002, 0.001, 1e-6),
    DecodeCost(0.01, 0.003, 1e-5, per_mean_context_token_s=2e-5, table=((1, 0.02), (8, 0.05))),
)


def measured(
    make_sequence: MakeSequence, num_prompt: int, num_before: int, num_sampled: int, num_computed: int
) -> float:
    """The one request that a profile saw, taken back out of the mean."""
    profiles = Profiles({"tiny": Fixed(COST)})
    prior = profiles["tiny"].mean_s
    request = make_sequence("r", num_prompt)
    request.tokens += [7] * num_before
    request.num_computed = num_computed
    profiles.came(request)
    request.tokens += [7] * num_sampled
    request.num_computed = len(request.tokens) - 1
    profiles.ended(request)
    return prior + (profiles["tiny"].mean_s - prior) * (PRIOR_WEIGHT + 1)


def steps_s(first_context: int, num: int) -> float:
    return sum(decode_step_s(COST.decode, 1, first_context + index) for index in range(num))


def test_a_whole_request_is_its_prompt_and_a_decode_step_for_each_further_token(make_sequence: MakeSequence):
    wanted = prefill_s(COST.prefill, 100) + steps_s(101, 49)
    assert measured(make_sequence, 100, 0, 50, 0) == pytest.approx(wanted)


def test_one_that_was_handed_over_counts_with_the_decode_steps_it_runs_here(make_sequence: MakeSequence):
    assert measured(make_sequence, 100, 1, 20, 100) == pytest.approx(steps_s(101, 20))


def test_one_that_migrated_in_the_middle_of_its_answer_counts_from_there(make_sequence: MakeSequence):
    assert measured(make_sequence, 100, 30, 5, 129) == pytest.approx(steps_s(130, 5))


def test_a_continuation_is_computed_anew(make_sequence: MakeSequence):
    wanted = prefill_s(COST.prefill, 130) + steps_s(131, 4)
    assert measured(make_sequence, 100, 30, 5, 0) == pytest.approx(wanted)


def test_on_an_engine_that_only_prefills_it_is_the_prompt(make_sequence: MakeSequence):
    assert measured(make_sequence, 100, 0, 1, 0) == pytest.approx(prefill_s(COST.prefill, 100))


def test_a_prefix_that_was_cached_cost_nothing(make_sequence: MakeSequence):
    profiles = Profiles({"tiny": Fixed(COST)})
    prior, request = profiles["tiny"].mean_s, make_sequence("r", 100)
    profiles.came(request)
    request.num_cached, request.num_computed = 64, 100
    request.tokens.append(7)
    profiles.ended(request)
    seen = prior + (profiles["tiny"].mean_s - prior) * (PRIOR_WEIGHT + 1)
    assert seen == pytest.approx(prefill_s(COST.prefill, 36, 64))


def test_what_never_ran_tells_nothing(make_sequence: MakeSequence):
    profiles, request = Profiles({"tiny": Fixed(COST)}), make_sequence("r", 100)
    prior = profiles["tiny"].mean_s
    profiles.came(request)
    profiles.ended(request)
    assert profiles["tiny"].mean_s == prior


def test_before_any_request_has_ended_services_rank_by_the_size_of_their_models():
    large = StepCost(PrefillCost(0.0, 0.01), DecodeCost(0.05, 0.01))
    profiles = Profiles({"small": Fixed(), "large": Fixed(large)})
    assert 0 < profiles["small"].budget_s < profiles["large"].budget_s


def test_mean_and_deviation_come_close_to_those_of_the_requests_and_follow_them():
    draw = random.Random(1)
    times = ExecutionTimes(50.0)
    for mean_s in (2.0, 9.0):
        last = [draw.gauss(mean_s, 0.5) for _ in range(10 * WINDOW)]
        for seconds in last:
            times.add(seconds)
        assert times.mean_s == pytest.approx(statistics.fmean(last), rel=0.05)
        assert times.std_s == pytest.approx(statistics.stdev(last), rel=0.3)


def test_equal_times_have_no_deviation_in_the_end():
    times = ExecutionTimes(1.0)
    for _ in range(20 * WINDOW):
        times.add(3.0)
    assert times.budget_s == pytest.approx(3.0, rel=1e-3)


def test_before_any_request_has_ended_services_rank_by_their_usual_lengths_where_those_are_known():
    costs = {"chat": Fixed(), "code": Fixed(), "other": Fixed()}
    profiles = Profiles(costs, {"chat": (500, 400), "code": (150, 30)})
    assert profiles["code"].mean_s < profiles["other"].mean_s < profiles["chat"].mean_s
    assert profiles["code"].mean_s == pytest.approx(0.15 + 29 * 0.006)  # by `serving.COST`


def test_another_prior_counts_as_if_it_had_been_there_from_the_beginning():
    late, early = ExecutionTimes(9.0), ExecutionTimes(2.0)
    for seconds in (1.0, 5.0, 3.0):
        late.add(seconds)
        early.add(seconds)
    late.expect(2.0)
    assert (late.mean_s, late.std_s) == pytest.approx((early.mean_s, early.std_s))
    for _ in range(3 * WINDOW):
        late.add(4.0)
    learned = late.mean_s
    late.expect(100.0)
    assert late.mean_s == pytest.approx(learned, rel=0.1)


def test_lengths_that_are_told_later_are_expected_from_then_on(make_sequence: MakeSequence):
    usual = {"tiny": (10, 5)}
    profiles = Profiles({"tiny": Fixed(COST)}, usual)
    short_s = profiles["tiny"].mean_s
    usual["tiny"] = (1000, 50)
    assert profiles["tiny"].mean_s > 10 * short_s
    assert profiles["tiny"].mean_s == Profiles({"tiny": Fixed(COST)}, usual)["tiny"].mean_s
