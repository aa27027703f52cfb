"""What an engine saves by loading or pulling a prefix, by the costs that it told last."""

import pytest

from mesh.wire.control import ProcessState, Role
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus
from router.view.prefix_savings import MOST_KEPT, PrefixSavings


def status(token_s: float = 1e-3, state: ProcessState = ProcessState.READY) -> EngineStatus:
    costs = PrefillCost(0.0, token_s), DecodeCost(0.01, 0.0)
    chat = ServiceStatus("chat", 9, 9, 16, *costs, tier_tokens=9, tier_token_s=1e-4, pull_s=0.01, pull_token_s=2e-4)
    return EngineStatus(1, state, Role.MULTIPLEX, "a", 1, [chat], 0, 0, 0, 0.0, 0.0, 0.0, None)


def test_the_part_of_computing_that_is_saved_counts_as_cached():
    savings = PrefixSavings("chat", status())
    assert savings.with_load(300, 100) == 100 + 180
    assert savings.with_pull(300, 100) == pytest.approx(100 + 150, abs=1)


def test_what_takes_longer_than_computing_counts_nothing():
    savings = PrefixSavings("chat", status(token_s=5e-5))
    assert (savings.with_load(300, 100), savings.with_pull(300, 100)) == (100, 100)


def test_answers_are_kept_until_other_costs_are_told():
    first = PrefixSavings("chat", status())
    first.with_load(300, 100)
    same, slower = PrefixSavings("chat", status(), first), PrefixSavings("chat", status(token_s=2e-3), first)
    assert same._loaded == {(300, 100): 280}
    assert slower.with_load(300, 100) == 290
    assert first.with_load(300, 100) == 280


def test_answers_are_bounded():
    savings = PrefixSavings("chat", status())
    for end in range(1, 3 * MOST_KEPT):
        savings.with_load(end, 0)
    assert len(savings._loaded) <= MOST_KEPT


def test_engines_that_hang_or_do_not_serve_it_bring_nothing():
    hanging = PrefixSavings("chat", status(state=ProcessState.STUCK))
    assert (hanging.loads, hanging.pulls) == (True, False)
    other = PrefixSavings("code", status())
    assert (other.loads, other.pulls) == (False, False)
