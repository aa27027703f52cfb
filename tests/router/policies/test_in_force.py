from itertools import permutations
from random import Random

import pytest

from mesh.errors import UserError
from mesh.topology.schema import PolicySpec
from mesh.wire.control import PolicyChoice
from router.policies.in_force import PolicyInForce


def in_force(spec=None):
    return PolicyInForce(spec or PolicySpec(), Random(0), now=10.0)


def test_the_topology_s_policy_is_version_0_with_its_defaults():
    policy = in_force(PolicySpec("tropical", {"watermark": 0.5}))
    assert (policy.choice.name, policy.choice.version, policy.choice.parameters["watermark"]) == ("tropical", 0, 0.5)
    assert in_force().choice.parameters["watermark"] == 0.9
    assert policy.age_s(12.5) == 2.5


def test_a_policy_that_does_not_exist_is_not_taken():
    policy = in_force()
    before = policy.choice, policy.policy
    with pytest.raises(UserError, match="no policy 'best'"):
        policy.take(PolicyChoice("best", {}, 5), 11.0)
    assert (policy.choice, policy.policy) == before


def test_whoever_hears_what_in_whatever_order_ends_up_with_the_same_policy():
    choices = [
        PolicyChoice("tropical", {"watermark": 0.9}, 1),
        PolicyChoice("colocated", {}, 2),
        PolicyChoice("round_robin", {}, 2),
        PolicyChoice("tropical", {"watermark": 0.5}, 2),
        PolicyChoice("tropical", {"watermark": 0.8}, 2),
    ]
    for order in permutations(choices):
        policy = in_force()
        for choice in order:
            if policy.is_later(choice):
                policy.take(choice, 11.0)
        assert policy.choice == choices[-1]


def test_what_is_known_already_is_not_later():
    policy = in_force()
    policy.take(PolicyChoice("colocated", {}, 3), 11.0)
    assert not policy.is_later(PolicyChoice("colocated", {}, 3))
    assert not policy.is_later(PolicyChoice("tropical", {"watermark": 0.9}, 2))
    assert policy.policy.name == "colocated"


def test_what_another_s_topology_says_is_not_taken():
    policy = in_force(PolicySpec("elastic"))
    assert not policy.is_later(PolicyChoice("tropical", {"watermark": 0.9}, 0))
