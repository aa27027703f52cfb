"""Baselines with early rejection refuse what they predict to be late, and nothing else."""

from random import Random

import pytest

from mesh.topology.schema import PolicySpec
from router.policies.policy import Dispatch, GiveUp
from router.policies.registry import make_policy
from tests.router.cluster import M0, P0, make_engine, make_request, make_view


@pytest.mark.parametrize("name", ["colocated", "chunked", "disaggregated", "disaggregated_sjf"])
@pytest.mark.parametrize("rejects", [True, False])
def test_the_late_are_refused_if_asked(name, rejects):
    policy = make_policy(PolicySpec(name, {"reject_late": rejects}), Random(0))
    busy = {"prefill_remaining_s": 0.5, "num_tokens": 9}
    view = make_view(make_engine(P0, **busy), make_engine(M0, **busy))
    assert isinstance(policy.decide(make_request(400), view, 0.0), Dispatch)
    assert isinstance(policy.decide(make_request(600), view, 0.0), GiveUp if rejects else Dispatch)
