"""Costs of servers that are only seen from outside."""

from random import Random

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.step_cost import StepCost
from mesh.wire.status import DecodeCost, PrefillCost
from router.servers.learnt.costs import DecodesSeen, PromptsSeen, ServerCosts

TRUE = StepCost(PrefillCost(0.02, 2e-4, 2e-8), DecodeCost(0.01, 3e-4, 2e-7))


def serve(costs: ServerCosts, num_requests: int, speed: float, seed: int = 1) -> None:
    """Let the server be used by requests of many sizes, on a machine that is not quiet."""
    random = Random(seed)
    for _ in range(num_requests):
        prompt, batch = int(random.lognormvariate(6, 1)) + 1, random.randint(1, 32)
        context = batch * random.randint(100, 2000)
        elapsed_s = prefill_s(TRUE.prefill, prompt, 0) / speed * random.lognormvariate(0, 0.1)
        costs.first_token(PromptsSeen(prompt, 0, elapsed_s))
        step_s = decode_step_s(TRUE.decode, batch, context) / speed
        costs.decoded(DecodesSeen(8, 8 * step_s * random.lognormvariate(0, 0.15), batch, context))


def ratios(costs: ServerCosts, speed: float) -> list[float]:
    cost = costs.current
    prefills = [prefill_s(cost.prefill, n, 0) / prefill_s(TRUE.prefill, n, 0) * speed for n in (200, 1000)]
    decodes = [decode_step_s(cost.decode, b, b * 1000) / decode_step_s(TRUE.decode, b, b * 1000) for b in (4, 24)]
    return prefills + [ratio * speed for ratio in decodes]


@pytest.mark.parametrize("speed", [0.03, 1.0, 50.0])
def test_a_server_of_any_speed_is_known_after_some_dozen_requests(speed: float):
    costs = ServerCosts()
    assert not costs.is_learnt
    serve(costs, 60, speed)
    assert costs.is_learnt
    assert ratios(costs, speed) == pytest.approx([1.0] * 4, rel=0.2)
    assert costs.prefill_error is not None
    assert costs.decode_error is not None
    assert max(costs.prefill_error, costs.decode_error) < 0.6


def test_a_server_that_becomes_slower_is_followed():
    costs = ServerCosts()
    serve(costs, 100, speed=1.0)
    serve(costs, 150, speed=1 / 3, seed=2)
    assert ratios(costs, speed=1 / 3) == pytest.approx([1.0] * 4, rel=0.35)


def test_a_profile_is_corrected_and_not_replaced():
    costs = ServerCosts(TRUE)
    assert costs.is_learnt
    for _ in range(50):
        costs.decoded(DecodesSeen(1, 2 * decode_step_s(TRUE.decode, 4, 4000), 4, 4000))
    assert decode_step_s(costs.current.decode, 4, 4000) == pytest.approx(
        2 * decode_step_s(TRUE.decode, 4, 4000), rel=0.1
    )
    assert prefill_s(costs.current.prefill, 500, 0) == pytest.approx(prefill_s(TRUE.prefill, 500, 0), rel=0.01)


def test_errors_of_guesses_are_forgotten_with_them():
    costs = ServerCosts()
    serve(costs, 3, speed=0.01)
    assert (costs.prefill_error, costs.decode_error) == (None, None)
    serve(costs, 60, speed=0.01)
    assert costs.prefill_error is not None
    assert costs.prefill_error < 0.6


def test_what_takes_no_time_teaches_nothing():
    costs = ServerCosts()
    for _ in range(100):
        costs.first_token(PromptsSeen(100, 0, 0.0))
        costs.decoded(DecodesSeen(1, 0.0, 4, 400))
        costs.decoded(DecodesSeen(1, 1.0, 0, 0))
    assert not costs.is_learnt
