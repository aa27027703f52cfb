"""When engines are asked about requests of which they say nothing, and what their denials mean."""

from types import SimpleNamespace

import pytest

from mesh.wire.requests import NotHeld, Probe, ProbeQuestion
from router.effects import SendToEngine
from router.policies.policy import Dispatch
from router.requests.in_flight_request import InFlightRequest
from router.requests.probing import Probing
from tests.router.cluster import D0, P0, make_in_flight, make_spec

REPLY_S = 4.0  # so that there is a round every second


class Requests(dict[str, InFlightRequest]):
    """Those in flight."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.values())

    def placed(self, request: str) -> InFlightRequest | None:
        return self.get(request)


def world() -> SimpleNamespace:
    """One request, sent at 0."""
    request = make_in_flight(make_spec())
    request.send(Dispatch(P0, D0, "a rule", 0.1, 0.2), 0.0)
    return SimpleNamespace(request=request, probing=Probing(Requests(r=request), REPLY_S))  # type: ignore[arg-type]


def question(offset: int = 0) -> list[SendToEngine]:
    return [SendToEngine(engine, Probe([ProbeQuestion("r", 0, offset)])) for engine in (P0, D0)]


def test_rounds_begin_with_the_first_request_and_end_with_the_last():
    here = world()
    assert here.probing.next_deadline() is None
    here.probing.begin(10.0)
    here.probing.begin(10.5)
    assert here.probing.next_deadline() == 11.0
    assert here.probing.ask(10.9) == []
    here.probing.ask(11.5)
    assert here.probing.next_deadline() == 12.5
    here.probing._in_flight.clear()
    here.probing.ask(12.5)
    assert here.probing.next_deadline() is None


@pytest.mark.parametrize(
    ("state", "patience_s"), [("sent", 1.0), ("accepted", 4.0), ("begun", 2.0), ("with a gap", 1.0)]
)
def test_silence_is_borne_for_longer_the_less_is_expected(state: str, patience_s: float):
    here = world()
    if state != "sent":
        here.request.assignment.own(P0)
        here.request.assignment.engines = (P0, D0)
    if state == "begun":
        here.request.stream.tokens.append(5)
    if state == "with a gap":
        here.request.stream.gap_since = 0.0
    for now in (0.5, 1.0, 2.0, 4.0):
        here.probing._next_round = now
        assert bool(here.probing.ask(now)) == (now >= patience_s)
        here.request.contact.asked_at = -1.0


def test_one_that_was_asked_about_is_given_time_to_be_answered():
    here = world()
    here.probing.begin(0.0)
    assert here.probing.ask(1.0) == question()
    here.probing._next_round = 1.9
    assert here.probing.ask(1.9) == []
    here.probing._next_round = 2.0
    assert here.probing.ask(2.0) == question()


def test_one_that_waits_is_not_asked_about():
    here = world()
    here.request.assignment.leave()
    here.probing.begin(0.0)
    assert here.probing.ask(100.0) == []


def test_what_is_missing_is_asked_for_at_once_but_not_again_and_again():
    here = world()
    here.request.stream.next_offset = 3
    assert here.probing.fill(here.request, 0.2) == question(3)
    assert here.probing.fill(here.request, 1.1) == []
    assert here.probing.fill(here.request, 1.2) == question(3)


@pytest.mark.parametrize(
    ("denials", "is_nowhere"),
    [
        ([(P0, 0), (D0, 0)], True),
        ([(P0, 0), (P0, 0)], False),
        ([(P0, 0), (D0, 1)], False),
        ([("other", 0), (P0, 0)], False),
    ],
)
def test_a_request_is_nowhere_when_all_its_engines_deny_it(denials: list[tuple[str, int]], is_nowhere: bool):
    here = world()
    found = [here.probing.denied(engine, NotHeld([("r", attempt)])) for engine, attempt in denials]
    assert found[-1] == ([here.request] if is_nowhere else [])
