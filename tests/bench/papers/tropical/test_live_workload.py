from random import Random

import pytest

from bench.papers.tropical.live.workload import (
    INPUT,
    OUTPUT,
    made_up_lengths,
    make_trace,
    promised,
    scaled_lengths,
    sendings_of,
)
from engines.costs.linear import prefill_s
from engines.costs.profiles import load_profile

PROFILE = load_profile("a100-llama2-70b-tp4")


def within_bounds(lengths):
    return all(
        INPUT.least <= one.num_input <= INPUT.most and OUTPUT.least <= one.num_output <= OUTPUT.most for one in lengths
    )


def test_made_up_lengths_stay_within_bounds_and_are_skewed():
    lengths = made_up_lengths(Random(0))
    assert within_bounds(lengths)
    inputs = sorted(one.num_input for one in lengths)
    assert sum(inputs) / len(inputs) > 1.2 * inputs[len(inputs) // 2]


def test_lengths_of_a_file_are_scaled_to_the_same_medians(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n" + "".join(f"{1000 * n},{200 * n}\n" for n in range(1, 100)))
    lengths = scaled_lengths(path, Random(0))
    assert within_bounds(lengths)
    assert sorted(one.num_input for one in lengths)[49] == INPUT.median
    assert sorted(one.num_output for one in lengths)[49] == OUTPUT.median


def test_each_request_is_promised_five_times_its_own_prefill():
    for one in promised(made_up_lengths(Random(0))[:20], PROFILE):
        assert one.slo_ttft_s == pytest.approx(5 * prefill_s(PROFILE.prefill, one.num_input))


def test_all_requests_are_promised_the_same_time_a_token():
    assert len({one.slo_tpot_s for one in promised(made_up_lengths(Random(0)), PROFILE)}) == 1


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
