from random import Random

from router.requests.breakers import BreakerLimits, Breakers, BreakerState
from tests.seeds import each_seed

LIMITS = BreakerLimits(window_s=20.0, num_failures=4, burst_s=0.25, pause_s=1.0, max_pause_s=30.0)
OPEN, HALF_OPEN = BreakerState.OPEN, BreakerState.HALF_OPEN


def tripped(at=0.0):
    """Of engine ``a``, open since ``at``."""
    breakers = Breakers(LIMITS)
    for index in range(4):
        breakers.failed(f"r{index}", ["a"], at - 3.0 + index)
    assert breakers.states(at) == {"a": OPEN}
    return breakers


def test_a_breaker_opens_after_failures_within_the_window():
    breakers = Breakers(LIMITS)
    for index in range(3):
        breakers.failed("r", ["a"], float(index))
        assert breakers.all_closed
        assert breakers.blocked(["a", "b"], float(index)) == set()
    breakers.failed("r", ["a"], 3.0)
    assert breakers.states(3.5) == {"a": OPEN}
    assert breakers.blocked(["a", "b"], 3.5) == {"a"}
    assert breakers.blocked(["b"], 3.5) == set()


def test_failures_that_are_far_apart_open_nothing():
    breakers = Breakers(LIMITS)
    for index in range(100):
        breakers.failed("r", ["a"], index * 7.0)
    assert breakers.all_closed


def test_what_fails_at_once_has_one_cause():
    breakers = Breakers(LIMITS)
    for index in range(100):
        breakers.failed(f"r{index}", ["a"], index * 0.002)
    assert breakers.all_closed


def test_an_engine_that_mostly_succeeds_keeps_its_requests():
    breakers = Breakers(LIMITS)
    for index in range(60):
        breakers.succeeded(f"s{index}", "a", float(index))
        breakers.succeeded(f"t{index}", "a", float(index))
        breakers.failed(f"f{index}", ["a"], index + 0.5)
    assert breakers.all_closed


def test_half_open_lets_one_request_through():
    breakers = tripped()
    assert breakers.states(1.0) == {"a": HALF_OPEN}
    assert breakers.blocked(["a", "b"], 1.0) == set()
    breakers.sent("trial", ["a"], 1.0)
    assert breakers.blocked(["a", "b"], 1.1) == {"a"}
    breakers.sent("other", ["a"], 1.2)
    breakers.succeeded("other", "a", 1.3)
    assert breakers.blocked(["a", "b"], 1.4) == {"a"}, "one that was sent before says nothing"
    breakers.succeeded("trial", "a", 1.5)
    assert breakers.all_closed
    breakers.failed("r", ["a"], 1.6)
    assert breakers.all_closed, "it begins anew"


def test_each_trial_that_fails_doubles_the_pause_up_to_a_bound():
    breakers, now, pauses = tripped(), 0.0, []
    for _ in range(8):
        opened_at = now
        while breakers.states(now) == {"a": OPEN}:
            now += 0.125
        pauses.append(now - opened_at)
        breakers.sent("trial", ["a"], now)
        breakers.failed("trial", ["a"], now)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_trial_that_ends_for_other_reasons_makes_way_for_another():
    breakers = tripped()
    breakers.sent("trial", ["a"], 1.0)
    breakers.left("someone else", ["a"])
    assert breakers.blocked(["a", "b"], 1.1) == {"a"}
    breakers.left("trial", ["a"])
    assert breakers.states(1.2) == {"a": HALF_OPEN}
    assert breakers.blocked(["a", "b"], 1.2) == set()


def test_when_all_are_open_the_one_that_failed_first_is_used():
    breakers = Breakers(LIMITS)
    for engine, offset in (("a", 0.5), ("b", 0.0), ("c", 0.7)):
        for index in range(4):
            breakers.failed("r", [engine], index + offset)
    assert breakers.blocked(["a", "b", "c"], 3.8) == {"a", "c"}
    assert breakers.blocked(["a", "c"], 3.8) == {"c"}


def test_what_was_a_requests_own_doing_is_forgiven():
    breakers = Breakers(LIMITS)
    for index in range(4):
        breakers.failed("poison", ["a"], float(index))
    breakers.failed("other", ["a"], 3.1)
    assert not breakers.all_closed
    breakers.forgive("nobody", 3.2)
    assert not breakers.all_closed
    breakers.forgive("poison", 3.2)
    assert breakers.all_closed


def test_deaths_count():
    breakers = Breakers(LIMITS)
    for index in range(4):
        breakers.failed(None, ["a"], index * 2.0)
    assert breakers.states(6.0) == {"a": OPEN}


@each_seed(range(50))
def test_an_engine_that_recovers_gets_requests_again_whatever_happened(seed):
    dice, breakers, now = Random(seed), Breakers(LIMITS), 0.0
    for _ in range(300):
        now += dice.uniform(0.0, 1.0)
        request, engine = f"r{dice.randrange(20)}", dice.choice("ab")
        match dice.randrange(5):
            case 0 | 1:
                breakers.failed(dice.choice([request, None]), [engine], now)
            case 2:
                breakers.sent(request, [engine], now)
            case 3:
                breakers.left(request, [engine])
            case 4:
                breakers.succeeded(request, engine, now)
        assert breakers.blocked("ab", now) != {"a", "b"}
    for request in range(20):
        breakers.left(f"r{request}", "ab")
    now += LIMITS.max_pause_s
    assert breakers.blocked("ab", now) == set()
    for engine in "ab":
        breakers.sent("last", [engine], now)
        breakers.succeeded("last", engine, now)
    assert breakers.all_closed


def test_a_request_that_did_all_the_harm_closes_what_it_opened():
    breakers = Breakers(LIMITS)
    for index in range(4):
        breakers.failed("poison", ["a"], float(index))
    assert not breakers.all_closed
    breakers.forgive("poison", 3.2)
    assert breakers.all_closed
