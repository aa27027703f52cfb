import pytest

from mesh.access.keys import KeyLimits
from router.api.access.rates import Charge, Meter, duration
from router.api.errors import ApiError


def asked(meter, limits, now, num_gateways=1):
    try:
        meter.ask(limits, num_gateways, now)
    except ApiError as error:
        return error
    return None


def begun(meter, limits, num_tokens, now, num_gateways=1):
    try:
        meter.begin(limits, num_tokens, num_gateways, now)
    except ApiError as error:
        return error
    return Charge(meter, num_tokens)


def test_a_minutes_requests_may_come_at_once_and_no_more():
    meter, limits = Meter(), KeyLimits(requests_per_minute=6)
    assert [asked(meter, limits, 100.0) for _ in range(6)] == [None] * 6
    error = asked(meter, limits, 100.0)
    assert (error.status, error.code, error.headers["retry-after"]) == (429, "rate_limit_exceeded", "10")
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert asked(meter, limits, 110.0) is None
    assert asked(meter, limits, 110.0) is not None


def test_no_more_than_the_limit_in_any_minute_after_the_first():
    meter, limits = Meter(), KeyLimits(requests_per_minute=60)
    admitted = [now / 4 for now in range(4 * 300) if asked(meter, limits, now / 4) is None]
    for start in range(60, 240):
        assert sum(start <= at < start + 60 for at in admitted) <= 61


def test_gateways_share_a_limit():
    meter, limits = Meter(), KeyLimits(requests_per_minute=6)
    assert [asked(meter, limits, 0.0, num_gateways=3) is None for _ in range(3)] == [True, True, False]


def test_tokens_that_were_not_used_are_given_back():
    meter, limits = Meter(), KeyLimits(tokens_per_minute=1000)
    first = begun(meter, limits, 900, 0.0)
    assert begun(meter, limits, 200, 0.0).headers["retry-after"] == "6"
    first.settle(100)
    first.settle(100)
    assert isinstance(begun(meter, limits, 900, 0.0), Charge)


def test_tokens_that_were_used_are_owed():
    meter, limits = Meter(), KeyLimits(tokens_per_minute=1000)
    begun(meter, limits, 5000, 0.0).settle(3000)
    assert begun(meter, limits, 1, 60.0).headers["retry-after"] == "61"
    assert isinstance(begun(meter, limits, 1, 121.0), Charge)


def test_a_request_above_a_minutes_tokens_waits_for_all_of_them():
    meter, limits = Meter(), KeyLimits(tokens_per_minute=1000)
    begun(meter, limits, 10, 0.0).settle(10)
    assert begun(meter, limits, 5000, 0.0).status == 429
    assert isinstance(begun(meter, limits, 5000, 1.0), Charge)


def test_requests_in_flight_are_bounded():
    meter, limits = Meter(), KeyLimits(in_flight=2)
    first, _ = begun(meter, limits, 1, 0.0), begun(meter, limits, 1, 0.0)
    assert begun(meter, limits, 1, 0.0).status == 429
    first.settle(1)
    assert isinstance(begun(meter, limits, 1, 0.0), Charge)


def test_what_is_left_is_told_as_openai_does():
    meter, limits = Meter(), KeyLimits(requests_per_minute=60, tokens_per_minute=6000)
    asked(meter, limits, 0.0)
    begun(meter, limits, 600, 0.0)
    assert meter.headers(limits, 1, 0.0) == {
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000", "x-ratelimit-remaining-tokens": "5400", "x-ratelimit-reset-tokens": "6s",
    }  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), [(0, b"0ms"), (0.25, b"250ms"), (1.5, b"1.5s"), (360, b"6m0s")])
def test_durations(seconds, text):
    assert duration(seconds) == text
