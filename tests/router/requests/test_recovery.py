"""What becomes of requests that engines fail: who is avoided, who is blamed, and when a request is given up."""

import pytest

from mesh.effects import Forget
from mesh.wire.requests import Cancel, Epoch, Failed, FailureCode, Held, Holding, NotHeld, RefusalCode, Refused
from router.effects import Effect, Fail, SendToEngine
from router.generation import Fault, RequestFailed
from router.history.lengths import LengthPredictor
from router.history.records import Outcome
from router.history.timelines import Timelines
from router.policies.policy import Dispatch
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.links import Links
from router.requests.overload.fairness import Fairness
from router.requests.recovery import FAILURES, KEPT, NOBODYS_FAULT, Recovery
from router.requests.request_state import ANY_HOP
from router.view.monitor import Monitor
from tests.router.cluster import D0, M0, M1, P0, make_spec, make_status, sender_of

LIMITS = DispatchLimits(8, 8, reply_s=1.0, stall_s=60.0, max_deaths=2, max_failed_steps=2)
NOW = 10.0


class World:
    """A gateway's requests, and the engines that it knows."""

    def __init__(self, *engines: str, num_blocks: int = 100) -> None:
        self.monitor = Monitor(100.0)
        for engine in engines or (P0, D0, M0, M1):
            self.monitor.observe(sender_of(engine), make_status(engine, num_blocks=num_blocks), NOW)
        self.breakers, self.links = Breakers(), Links()
        self.fairness, self.lengths, self.timelines = Fairness(), LengthPredictor(), Timelines()
        kept = self.timelines, self.lengths, self.fairness
        self.requests = InFlightRequests(LIMITS, self.monitor, self.breakers, *kept)
        self.recovery = Recovery(self.requests, self.monitor, self.breakers, self.links, LIMITS)

    def sent(self, name: str = "r", prefill: str = P0, decode: str = D0) -> InFlightRequest:
        spec = make_spec(name)
        self.fairness.arrived("", NOW)
        request = InFlightRequest.of(spec, self.timelines.arrived(spec, NOW), 0.0, self.lengths.predict(spec))
        self.requests.add(request)
        self.send(request, prefill, decode)
        return request

    def send(self, request: InFlightRequest, prefill: str, decode: str) -> None:
        self.requests.waiting.remove(request)
        request.send(Dispatch(prefill, decode, "a rule", 0.1, 0.2), NOW)
        self.breakers.sent(request.id, request.engines, NOW)

    def running(self, *tokens: int) -> InFlightRequest:
        request = self.sent("r", M0, M0)
        request.assignment.own(M0)
        request.stream.tokens += tokens
        return request


def refused(code: RefusalCode, attempt: int = 0) -> Refused:
    return Refused("r", Epoch(attempt), code, "no")


def failed(code: FailureCode, attempt: int = 0) -> Failed:
    return Failed("r", Epoch(attempt), "it broke", code)


def cancels(effects: list[Effect]) -> list[tuple[str, Cancel]]:
    return [(e.to, e.message) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Cancel)]


def only_error(effects: list[Effect]) -> RequestFailed:
    (error,) = [effect.error for effect in effects if isinstance(effect, Fail)]
    assert isinstance(error, RequestFailed)
    return error


ALL_OF_IT = Cancel("r", Epoch(0, ANY_HOP))


# --- engines refuse


@pytest.mark.parametrize("code", list(RefusalCode))
def test_whoever_refused_a_request_is_avoided_unless_it_is_nobodys_fault(code: RefusalCode):
    world = World()
    request = world.sent()
    assert world.recovery.refuse(P0, refused(code), NOW)
    avoided = set() if code in NOBODYS_FAULT else {P0, D0} if code is RefusalCode.TRANSFER_FAILED else {P0}
    assert (request.losses.avoids(NOW), request.assignment.is_waiting) == (avoided, True)


def test_after_it_was_accepted_a_refusal_is_the_decode_engines_doing():
    world = World()
    request = world.sent()
    request.assignment.own(P0)
    request.assignment.engines = (P0, D0)
    world.recovery.refuse(P0, refused(RefusalCode.FULL), NOW)
    assert request.losses.avoids(NOW) == {D0}


@pytest.mark.parametrize("code", list(RefusalCode))
def test_only_refusals_that_tell_of_failures_count_against_an_engine(code: RefusalCode):
    world = World()
    for attempt in range(20):
        request = world.sent()
        world.recovery.refuse(P0, refused(code), NOW + attempt)
        world.requests.fail(request, RequestFailed("", Fault.CLIENT), NOW)
    assert world.breakers.all_closed == (code not in FAILURES)


@pytest.mark.parametrize("code", list(RefusalCode))
@pytest.mark.parametrize("decode", [D0, P0])
def test_a_hand_over_that_failed_tells_of_the_link(code: RefusalCode, decode: str):
    world = World()
    world.sent(decode=decode)
    world.recovery.refuse(P0, refused(code), NOW)
    assert world.links.all_whole == (code not in FAILURES or decode == P0)


def test_a_refusal_of_an_older_attempt_says_nothing():
    world = World()
    request = world.sent()
    world.recovery.refuse(P0, refused(RefusalCode.FULL), NOW)
    assert not world.recovery.refuse(P0, refused(RefusalCode.FULL), NOW)  # it waits
    world.send(request, P0, D0)
    assert not world.recovery.refuse(P0, refused(RefusalCode.FULL, attempt=0), NOW)
    assert world.recovery.refuse(P0, refused(RefusalCode.FULL, attempt=1), NOW)
    assert request.losses.num_refusals == 2


# --- engines end


def test_what_a_lost_engine_held_goes_on_elsewhere_and_the_others_stay():
    world = World()
    lost, other = world.sent("r"), world.sent("other", M0, M1)
    world.monitor.observe(sender_of(D0, 2), make_status(D0), NOW)
    effects = world.recovery.lose(sender_of(D0), NOW, died=True)
    assert effects[0] == Forget(D0)
    assert (P0, ALL_OF_IT) in cancels(effects)
    assert (lost.assignment.is_waiting, lost.losses.num_deaths, lost.losses.avoids(NOW)) == (True, 1, {D0})
    assert other.engines == (M0, M1)


def test_an_engine_that_was_only_silent_is_told_once_to_stop_what_it_held():
    world = World()
    world.sent()
    world.recovery.lose(sender_of(P0), NOW, died=False)
    assert world.recovery.join(sender_of(P0)) == [SendToEngine(P0, ALL_OF_IT)]
    assert world.recovery.join(sender_of(P0)) == []


def test_a_new_incarnation_is_told_nothing_and_the_old_one_is_forgotten():
    world = World()
    world.sent()
    world.recovery.lose(sender_of(P0), NOW, died=False)
    assert world.recovery.join(sender_of(P0, 2)) == []
    assert world.recovery.join(sender_of(P0)) == []


@pytest.mark.parametrize(("num_generated", "is_moved"), [(11, True), (12, False)])
def test_requests_leave_a_stuck_engine_only_if_there_is_anywhere_to_go(num_generated: int, is_moved: bool):
    world = World(M0, M1, num_blocks=7)  # for 112 tokens; the prompt has 100
    request, other = world.running(*range(num_generated)), world.sent("other", P0, P0)
    world.recovery.leave_stuck(M0, "no step ends", NOW)
    assert (request.assignment.is_waiting, other.engines) == (is_moved, (P0,))
    assert (request.losses.num_deaths, request.losses.avoids(NOW)) == ((1, {M0}) if is_moved else (0, set()))


def test_a_request_that_engines_die_of_is_given_up():
    world = World()
    request = world.running()
    for num_deaths in range(LIMITS.max_deaths):
        assert [e for e in world.recovery.lose(sender_of(M0), NOW, died=True) if isinstance(e, Fail)] == []
        assert request.losses.num_deaths == num_deaths + 1
        world.send(request, M0, M0)
    error = only_error(world.recovery.lose(sender_of(M0), NOW, died=True))
    assert (error.fault, str(error)) == (
        Fault.SERVER,
        f"given up after {LIMITS.max_deaths + 1} attempts that broke off; the last: {M0} was lost",
    )


@pytest.mark.parametrize(("after_s", "is_given_up"), [(LIMITS.stall_s, False), (LIMITS.stall_s + 0.1, True)])
def test_a_request_is_given_up_when_losses_bring_no_token_for_long(after_s: float, is_given_up: bool):
    world = World()
    request = world.running()
    world.recovery.interrupt(request, "silence", (), NOW)
    world.send(request, M1, M1)
    effects = world.recovery.interrupt(request, "silence again", (), NOW + after_s)
    assert any(isinstance(effect, Fail) for effect in effects) == is_given_up
    assert (request in list(world.requests)) != is_given_up


def test_only_living_engines_are_told_to_stop():
    world = World(P0)
    assert world.recovery.stop(world.sent()) == [SendToEngine(P0, ALL_OF_IT)]


# --- engines give up a request


def test_a_step_that_fails_twice_with_nothing_but_the_request_ends_it_and_blames_nobody():
    world = World()
    request = world.running()
    effects = world.recovery.fail(M0, failed(FailureCode.STEP), NOW)
    assert cancels(effects) == [(M0, ALL_OF_IT)]
    assert (request.losses.num_failed_steps, request.losses.avoids(NOW)) == (1, {M0})
    world.send(request, M1, M1)
    effects = world.recovery.fail(M1, failed(FailureCode.STEP, attempt=1), NOW)
    assert cancels(effects) == [(M1, Cancel("r", Epoch(1, ANY_HOP)))]
    assert only_error(effects).fault is Fault.SERVER
    assert world.breakers.all_closed


@pytest.mark.parametrize("code", [code for code in FailureCode if code not in (FailureCode.STEP, FailureCode.BROKEN)])
def test_what_would_fail_anywhere_ends_at_once(code: FailureCode):
    world = World()
    world.running()
    effects = world.recovery.fail(M0, failed(code), NOW)
    known = {FailureCode.CUT: Fault.UPSTREAM, FailureCode.ADAPTER: Fault.SERVER}
    error, fault = only_error(effects), known.get(code, Fault.CLIENT)
    assert (cancels(effects), error.fault, len(world.requests)) == ([(M0, ALL_OF_IT)], fault, 0)


def test_what_a_server_broke_off_goes_on_elsewhere_until_it_was_too_many():
    world = World()
    request = world.running()
    assert cancels(world.recovery.fail(M0, failed(FailureCode.BROKEN), NOW)) == [(M0, ALL_OF_IT)]
    assert request.assignment.is_waiting
    for attempt in range(1, LIMITS.max_deaths + 1):
        world.send(request, M1, M1)
        effects = world.recovery.fail(M1, failed(FailureCode.BROKEN, attempt=attempt), NOW)
    assert only_error(effects).fault is Fault.UPSTREAM


def test_a_failure_of_an_older_attempt_says_nothing():
    world = World()
    request = world.running()
    world.recovery.refuse(M0, refused(RefusalCode.FULL), NOW)
    assert world.recovery.fail(M0, failed(FailureCode.STEP), NOW) == []
    world.send(request, M1, M1)
    assert world.recovery.fail(M0, failed(FailureCode.STEP), NOW) == []
    assert request.engines == (M1,)


# --- engines say what they hold


@pytest.mark.parametrize(("phase", "blamed"), [("sent", {P0}), ("running", {P0, D0})])
def test_silence_is_the_fault_of_whoever_was_to_speak(phase: str, blamed: set[str]):
    world = World()
    for now in (NOW, NOW + 1, NOW + 2, NOW + 3):
        request = world.sent()
        if phase == "running":
            request.assignment.own(P0)
            request.assignment.engines = (P0, D0)
        world.recovery.overdue(request, now)
        assert request.losses.avoids(now) == {P0, D0}
        world.requests.fail(request, RequestFailed("", Fault.CLIENT), now)
    assert world.breakers.blocked([P0, D0, M0], now) == blamed


def test_what_none_of_its_engines_has_goes_on_and_nobody_is_avoided():
    world = World()
    request = world.sent()
    world.recovery.deny(P0, NotHeld([("r", 0)]), NOW)
    assert request.engines == (P0, D0)
    world.recovery.deny(D0, NotHeld([("r", 0)]), NOW)
    assert (request.assignment.is_waiting, request.losses.avoids(NOW)) == (True, set())


@pytest.mark.parametrize(
    ("engine", "request_id", "attempt", "held_at"),
    [(P0, "r", 0, NOW), (M0, "r", 0, None), (P0, "r", 1, None), (P0, "unknown", 0, None)],
)
def test_only_an_engine_of_this_attempt_can_say_that_it_holds_a_request(
    engine: str, request_id: str, attempt: int, held_at: float | None
):
    world = World()
    request = world.sent()
    world.recovery.hold(engine, Held([Holding(request_id, attempt, 3)]), NOW)
    holds = request.timeline.holds
    assert (request.contact.heard_at, None if holds is None else holds.num_ahead) == (
        (NOW, 3) if held_at is not None else (0.0, None)
    )


def test_what_was_to_stop_shortly_before_an_engine_was_lost_is_stopped_when_it_is_back():
    """The connection was dropped with what was queued for it."""
    world = World()
    request = world.sent()
    assert (P0, ALL_OF_IT) in cancels(world.recovery.stop(request))
    world.recovery.heard(P0)
    world.requests.leave(request, Outcome.CANCELLED, "its client left", NOW)
    world.recovery.lose(sender_of(P0), NOW, died=False)
    assert world.recovery.join(sender_of(P0)) == [SendToEngine(P0, ALL_OF_IT)]


def test_what_an_engine_has_heard_long_ago_is_not_resent():
    world = World()
    request = world.sent()
    world.recovery.stop(request)
    world.requests.leave(request, Outcome.CANCELLED, "its client left", NOW)
    for _ in range(KEPT):
        world.recovery.heard(P0)
    world.recovery.lose(sender_of(P0), NOW, died=False)
    assert world.recovery.join(sender_of(P0)) == []


def test_only_the_last_incarnation_of_an_engine_may_have_been_silent():
    world = World()
    world.sent()
    world.recovery.lose(sender_of(P0), NOW, died=False)
    world.recovery.lose(sender_of(P0, 2), NOW, died=False)
    assert world.recovery.join(sender_of(P0)) == []


def test_an_engine_is_told_again_what_was_cancelled_before_its_last_statuses():
    """A request that waits there would not show that the first word of it was lost."""
    world = World()
    world.recovery.stop(world.sent())
    told = [world.recovery.heard(P0) for _ in range(KEPT + 1)]
    assert told == [[SendToEngine(P0, ALL_OF_IT)]] * (KEPT - 1) + [[]] * 2
