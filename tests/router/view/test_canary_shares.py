"""Engines of small weight get their share, and no more."""

from collections import Counter

import pytest

from router.view.canary_shares import HALVED_AT, Shares


def play(shares, engines, number):
    """Dispatch to the first engine that is left, as a policy would that has no reason to choose."""
    found = Counter()
    for _ in range(number):
        left_out = shares.trials(engines)[0]
        [engine, *_] = sorted(set(engines) - left_out)
        shares.dispatched(engine)
        found[engine] += 1
    return found


@pytest.mark.parametrize("weight", [0.05, 0.25, 0.5])
def test_a_canary_gets_its_part_of_what_another_engine_gets(weight):
    found = play(Shares({"canary": weight}), ["canary", "stable"], 20_000)
    assert found["canary"] / found["stable"] == pytest.approx(weight, rel=0.05)


def test_weights_are_beside_each_other_and_alone_they_mean_nothing():
    found = play(Shares({"a": 0.7, "b": 0.35}), ["a", "b"], 3000)
    assert found["b"] / found["a"] == pytest.approx(0.5, rel=0.05)
    assert play(Shares({"a": 0.1}), ["a"], 10) == {"a": 10}
    assert Shares({"a": 1.0}).are_even


def test_if_the_canary_does_not_take_it_the_others_do():
    shares = Shares({"canary": 0.5})
    assert shares.trials(["canary", "stable"]) == [{"canary"}]
    for _ in range(2):
        shares.dispatched("stable")
    assert shares.trials(["canary", "stable"]) == [{"stable"}, {"canary"}]


def test_what_was_long_ago_counts_less():
    long, short = Shares({"canary": 0.5}), Shares({"canary": 0.5})
    for _ in range(2 * HALVED_AT):
        long.dispatched("stable")
    for _ in range(100):
        short.dispatched("stable")
    engines = ["canary", "stable"]
    assert play(long, engines, 10_000)["canary"] - play(short, engines, 10_000)["canary"] < HALVED_AT / 2
