"""Headers that steer a request, and those that tell where it ran."""

import pytest

from mesh.rules import Lateness
from router.api.errors import ApiError
from router.api.http.headers import NO_WISHES, Wishes, headers_of, request_id, route_headers
from router.generation import Route


def test_the_first_of_several_headers_with_one_name_counts():
    scope = {"headers": [(b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"\xff")]}
    assert headers_of(scope) == {"x-a": "1", "x-b": "\xff"}
    assert headers_of(scope) is headers_of(scope), "they are read once"


@pytest.mark.parametrize("given", ["a", "A-b_c.d:9", "x" * 64])
def test_a_sane_request_id_is_kept(given: str):
    assert request_id({"x-request-id": given}) == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a\n", "ä", "a/b"])
def test_another_one_is_replaced(given: str):
    made = request_id({"x-request-id": given})
    assert len(made) == 32
    assert made != request_id({})


def test_wishes_are_milliseconds_and_whole_priorities():
    headers = {"x-slo-ttft-ms": "250.5", "x-slo-tpot-ms": "20", "x-priority": "-100", "x-late": "reject"}
    assert Wishes.of(headers) == Wishes(0.2505, 0.02, -100, Lateness.REJECT)
    assert Wishes.of({"accept": "*/*"}) is NO_WISHES
    assert NO_WISHES.are_none
    assert not Wishes(None, None, 0).are_none
    assert not Wishes(None, None, None, Lateness.SERVE).are_none


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "nan", "1_0", " 5", "3600000.1", "٣", "5ms", ""])
@pytest.mark.parametrize("name", ["x-slo-ttft-ms", "x-slo-tpot-ms"])
def test_what_is_no_time_is_refused_by_the_headers_name(name: str, text: str):
    with pytest.raises(ApiError) as error:
        Wishes.of({name: text})
    assert (error.value.status, error.value.param) == (400, name)


def test_an_hour_is_the_longest_promise():
    assert Wishes.of({"x-slo-ttft-ms": "3600000"}).slo_ttft_s == 3600.0


@pytest.mark.parametrize("text", ["101", "-101", "1.5", "+1", "high", "1000", ""])
def test_what_is_no_priority_is_refused(text: str):
    with pytest.raises(ApiError, match=r"integer in -100\.\.100"):
        Wishes.of({"x-priority": text})


def test_a_late_answer_is_served_or_refused():
    with pytest.raises(ApiError, match="serve or reject"):
        Wishes.of({"x-late": "Reject"})


def test_a_route_is_told_with_what_was_predicted():
    assert route_headers(Route("prefill-0", "decode-0", "foresight", 0.25, 0.0125, 0)) == {
        "x-meshserve-prefill": "prefill-0",
        "x-meshserve-decode": "decode-0",
        "x-meshserve-rule": "foresight",
        "x-meshserve-queued-ms": "12.500",
        "x-meshserve-predicted-ttft-ms": "250.000",
    }
