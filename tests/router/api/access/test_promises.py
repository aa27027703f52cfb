"""What a request is promised: as its service, as far as its client may change that."""

from dataclasses import dataclass

import pytest

from mesh.access.keys import KeyLimits
from mesh.rules import Lateness
from mesh.topology.schema import Slo
from mesh.wire.requests import PRIORITY_BATCH
from router.api.access.promises import LOOSEST, LOOSEST_TPOT_S, LOOSEST_TTFT_S, Promise, promise_of_vectors
from router.api.errors import ApiError
from router.api.http.callers import Caller, Charge
from router.api.http.headers import NO_WISHES, Wishes

SLO = Slo(1.0, 0.1, 0.95)


@dataclass(frozen=True)
class Service:
    slo: Slo = SLO
    priority: int = 1
    late: Lateness | None = Lateness.SERVE
    max_priority: int = 5
    min_ttft_s: float = 0.5
    min_tpot_s: float = 0.05


@dataclass(frozen=True)
class Key:
    limits: KeyLimits
    key: str = "key"

    def begin(self, num_tokens: int) -> Charge:
        raise AssertionError("promises charge nothing")


def promise(wishes: Wishes = NO_WISHES, service: Service | None = None, **limits: object) -> Promise:
    rights = Key(KeyLimits(**limits)) if limits else None  # type: ignore[arg-type]
    return Promise.of(wishes, service or Service(), Caller("peer", "tenant", rights))


def wish(ttft_s: float | None = None, tpot_s: float | None = None, priority: int | None = None) -> Wishes:
    return Wishes(ttft_s, tpot_s, priority)


def refused(wishes: Wishes, **limits: object) -> ApiError:
    with pytest.raises(ApiError) as error:
        promise(wishes, **limits)
    return error.value


def test_without_wishes_it_is_the_services():
    assert promise() == Promise(SLO, 1, Lateness.SERVE)


def test_a_promise_may_be_as_tight_as_the_service_allows():
    assert promise(wish(0.5, 0.05)).slo == Slo(0.5, 0.05, 0.95)
    error = refused(wish(0.499))
    assert (error.status, error.param) == (400, "x-slo-ttft-ms")
    assert "min_ttft_ms" in error.message
    assert refused(wish(None, 0.049)).param == "x-slo-tpot-ms"


def test_a_key_has_bounds_of_its_own_which_may_be_tighter_than_the_services():
    assert promise(wish(0.1), min_ttft_ms=100).slo.ttft_s == 0.1
    error = refused(wish(0.8), min_ttft_ms=900)
    assert (error.status, error.code) == (403, "promise_not_allowed")


def test_a_key_with_looser_bounds_than_the_service_has_the_looser_promise():
    assert promise(min_ttft_ms=3000, min_tpot_ms=50).slo == Slo(3.0, 0.1, 0.95)


def test_a_promise_that_is_much_looser_counts_as_the_loosest_there_is():
    assert promise(wish(999.0, 999.0)).slo == Slo(LOOSEST_TTFT_S, LOOSEST_TPOT_S, 0.95)
    slow = Service(slo=Slo(30.0, 1.0))
    assert promise(wish(999.0, 999.0), slow).slo == Slo(LOOSEST * 30.0, LOOSEST * 1.0)


def test_a_priority_may_be_as_high_as_the_service_or_the_key_allows():
    assert [promise(wish(priority=asked)).priority for asked in (-7, 5)] == [-7, 5]
    assert refused(wish(priority=6)).status == 400
    assert promise(wish(priority=9), max_priority=9).priority == 9
    assert refused(wish(priority=3), max_priority=2).status == 403


def test_a_key_whose_priority_is_lower_than_the_services_lowers_it():
    assert (promise(max_priority=0).priority, promise(max_priority=3).priority) == (0, 1)


def test_a_late_answer_is_what_the_client_wants_or_else_the_service():
    assert promise(Wishes(None, None, None, Lateness.REJECT)).late is Lateness.REJECT
    assert promise(wish(priority=0)).late is Lateness.SERVE


def test_a_line_of_a_batch_has_its_window_and_nothing_else():
    caller = Caller("peer", "tenant", None, window_s=600.0)
    found = Promise.of(wish(priority=99), Service(), caller)
    assert found == Promise(Slo(600.0, 600.0, 0.95), PRIORITY_BATCH)


def test_vectors_have_no_time_per_token():
    caller = Caller("peer", "tenant")
    assert promise_of_vectors(wish(0.7), Service(), caller).slo.ttft_s == 0.7
    with pytest.raises(ApiError, match="x-slo-ttft-ms alone"):
        promise_of_vectors(wish(0.7, 0.1), Service(), caller)
