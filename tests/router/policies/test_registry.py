from random import Random

import msgspec
import pytest

from mesh.errors import UserError
from mesh.topology.schema import PolicySpec
from router.policies.policy import Dispatch, Wait
from router.policies.registry import make_policy, policies, with_defaults
from tests.router.cluster import M0, make_engine, make_request, make_view


def test_parameters_reach_the_policy():
    view = make_view(make_engine(M0, num_free_blocks=80))
    for watermark, expected in ((0.5, Dispatch), (0.2, Wait)):
        policy = make_policy(PolicySpec("tropical", {"watermark": watermark}), Random(0))
        assert isinstance(policy.decide(make_request(16), view, 0.0), expected)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (PolicySpec("tropcial"), ["tropcial", "did you mean 'tropical'?"]),
        (PolicySpec("nothing_like_it"), ["nothing_like_it", "tropical", "round_robin", "disaggregated"]),
        (PolicySpec("tropical", {"watermrak": 0.5}), ["watermrak", "tropical", "did you mean 'watermark'?"]),
        (PolicySpec("tropical", {"zzz": 0.5}), ["zzz", "tropical", "use balance, flips, headroom or watermark"]),
        (PolicySpec("round_robin", {"watermark": 0.5}), ["watermark", "round_robin", "none"]),
        (PolicySpec("tropical", {"watermark": "high"}), ["[policy] watermark", "expected a number, got a text"]),
        (PolicySpec("tropical", {"watermark": 1.5}), ["[policy] watermark", "<= 1"]),
    ],
)
def test_mistakes_get_one_line_that_says_what_there_is(spec, words):
    with pytest.raises(UserError) as caught:
        make_policy(spec, Random(0))
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


@pytest.mark.parametrize("name", policies())
def test_a_policy_with_its_defaults_is_the_same_after_a_message(name):
    """Else who asked for it would not know it again."""
    parameters = with_defaults(PolicySpec(name)).parameters
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(parameters)) == parameters
