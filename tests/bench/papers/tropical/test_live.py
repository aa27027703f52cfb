"""Tropical's policies on a live mesh: who serves what when, on which engines, and how attainment is counted."""

from random import Random

import pytest

from bench.papers.tropical.live import (
    INPUT,
    OUTPUT,
    POLICIES,
    Run,
    made_up_lengths,
    promised,
    topology_text,
    trials,
)
from bench.simulated import arriving
from engines.costs.linear import prefill_s
from engines.costs.named_profiles import load_profile
from mesh.topology.parse import load
from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.control import Role

SERVICE = ServiceSpec("chat", "hf:org/name", Slo(1.0, 0.1, 0.9))
PROFILE = load_profile("a100-llama2-70b-tp4")


def test_policies_that_do_not_split_get_engines_that_are_alike(tmp_path):
    path = tmp_path / "topology.toml"
    for policy in POLICIES:
        path.write_text(topology_text(policy, SERVICE))
        topology = load(path)
        alike = policy in ("colocated", "chunked")
        assert topology.policy.name == policy
        assert [one.role for one in topology.engines] == [Role.MULTIPLEX if alike else Role.PREFILL, Role.MULTIPLEX]


def test_made_up_lengths_stay_within_bounds_and_are_skewed():
    lengths = made_up_lengths()
    assert all(INPUT.least <= one.num_input <= INPUT.most for one in lengths)
    assert all(OUTPUT.least <= one.num_output <= OUTPUT.most for one in lengths)
    inputs = sorted(one.num_input for one in lengths)
    assert sum(inputs) / len(inputs) > 1.2 * inputs[len(inputs) // 2]


def test_each_request_is_promised_five_times_its_own_prefill_and_the_same_time_a_token():
    pool = promised(made_up_lengths()[:20], PROFILE)
    assert [one.slo_ttft_s for one in pool] == [
        pytest.approx(5 * prefill_s(PROFILE.prefill, o.num_input)) for o in pool
    ]
    assert len({one.slo_tpot_s for one in pool}) == 1


def test_the_same_requests_arrive_at_another_rate():
    pool = made_up_lengths()
    slow, fast = arriving(pool, 1.0, 20, Random(3)), arriving(pool, 2.0, 20, Random(3))
    assert len(slow) == 20
    for one, other in zip(slow, fast, strict=True):
        assert (one.num_input, one.num_output) == (other.num_input, other.num_output)
        assert one.at_s == pytest.approx(2 * other.at_s)


def test_requests_of_one_rate_count_alike_whatever_run_they_are_of():
    def run(rate, *kept):
        return Run("policy", rate, kept, 0.0, 0.0)

    found = trials([run(2.0, False), run(1.0, True), run(2.0, True, True, True)])
    assert [(trial.rate, trial.attainment) for trial in found] == [(1.0, 1.0), (2.0, 0.75)]
