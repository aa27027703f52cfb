"""Tropical's policies on a live mesh: who serves what when, on which engines, and how attainment is counted."""

from random import Random

import pytest

from bench.live.http_load import Answer
from bench.live.serving import is_kept, sendings_of
from bench.papers.tropical.live import (
    INPUT,
    OUTPUT,
    POLICIES,
    Run,
    made_up_lengths,
    make_trace,
    promised,
    topology_text,
    trials,
)
from engines.costs.linear import prefill_s
from engines.costs.profiles import load_profile
from mesh.topology.parse import load
from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.control import Role
from simulation.loads.trace_request import TraceRequest

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
    slow, fast = make_trace(pool, 1.0, 20, seed=3), make_trace(pool, 2.0, 20, seed=3)
    assert len(slow) == 20
    for one, other in zip(slow, fast, strict=True):
        assert (one.num_input, one.num_output) == (other.num_input, other.num_output)
        assert one.at_s == pytest.approx(2 * other.at_s)


def test_prompts_of_two_runs_share_no_beginning():
    trace = make_trace(promised(made_up_lengths(), PROFILE), 1.0, 20, seed=3)
    one, other = sendings_of(trace, Random("a")), sendings_of(trace, Random("b"))
    assert [len(sending.prompt) for sending in one] == [len(sending.prompt) for sending in other]
    assert all(a.prompt[:16] != b.prompt[:16] for a, b in zip(one, other, strict=True))
    assert [sending.slo_ttft_s for sending in one] == [request.slo_ttft_s for request in trace]


# --- attainment -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "first_s", "last_s", "keeps"),
    [(200, 2.0, 2.9, True), (200, 2.1, 2.9, False), (200, 2.0, 3.0, False), (429, 1.5, 1.5, False)],
)
def test_a_request_is_kept_within_both_slos(status: int, first_s: float, last_s: float, keeps: bool):
    request = TraceRequest(0.0, 100, 10, slo_ttft_s=1.0, slo_tpot_s=0.1001)
    assert is_kept(request, Answer(0, 1.0, status, first_s, last_s, {})) is keeps


def test_requests_of_one_rate_count_alike_whatever_run_they_are_of():
    def run(rate, *kept):
        return Run("policy", rate, kept, 0.0, 0.0)

    found = trials([run(2.0, False), run(1.0, True), run(2.0, True, True, True)])
    assert [(trial.rate, trial.attainment) for trial in found] == [(1.0, 1.0), (2.0, 0.75)]
