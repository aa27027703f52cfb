"""Which waiting requests are decided about when, and what comes of each decision of a policy."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from mesh.wire.control import ProcessState
from mesh.wire.requests import Recall, Submit
from router.effects import Effect, Fail, SendToEngine, SetRoute
from router.generation import NoEngines, Overloaded, RequestFailed
from router.history.lengths import LengthPredictor
from router.history.timelines import Timelines
from router.policies.capabilities import AllowsLateness, FollowsRequests, PlansRounds, RecallsRequests, ReordersQueue
from router.policies.policy import Decision, Dispatch, GiveUp, Policy, Reject, Wait
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.links import Links
from router.requests.overload.fairness import Fairness
from router.requests.routing import RECALL_S, TRIES_PER_ROUND, Routing
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView
from router.view.monitor import Monitor
from tests.router.cluster import D0, D1, M0, M1, P0, SERVICE, make_spec, make_status, sender_of

LIMITS = DispatchLimits(200, 200, reply_s=1.0)
WAIT = Wait("all are busy")


class Scripted(Policy, ReordersQueue, RecallsRequests, FollowsRequests):
    """Decides as a test says, tries the longest prompts first, and calls back all that has not begun."""

    capabilities = (AllowsLateness(0.5),)
    name = "scripted"

    def __init__(self) -> None:
        self.script: Callable[[RequestView, ClusterView], Decision] = lambda request, view: to(M0)
        self.asked: list[str] = []
        self.gone: list[str] = []

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        self.asked.append(request.id)
        return self.script(request, view)

    def rank(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[RequestView]:
        return sorted(waiting, key=lambda request: -request.num_tokens)

    def recall(
        self, not_begun: Mapping[str, Sequence[RequestView]], view: ClusterView, now: float
    ) -> Sequence[RequestView]:
        return [request for requests in not_begun.values() for request in requests]

    def left(self, request: str) -> None:
        self.gone.append(request)


class InRounds(Scripted):
    """Looks at what waits from a moment on."""

    capabilities = (PlansRounds(5.0),)


def to(engine: str, decode: str | None = None) -> Dispatch:
    return Dispatch(engine, decode or engine, "as told", 0.1, 0.2)


class World:
    """The requests of a gateway, and what becomes of those that wait."""

    def __init__(self, *engines: str, policy: Scripted | None = None) -> None:
        self.policy = policy or Scripted()
        self.monitor, self.breakers, self.links = Monitor(100.0), Breakers(), Links()
        self.fairness = Fairness()
        self.timelines, self.lengths = Timelines(), LengthPredictor()
        kept = self.timelines, self.lengths, self.fairness
        self.requests = InFlightRequests(LIMITS, self.monitor, self.breakers, *kept)
        self.routing = Routing(
            self.policy, self.requests, self.monitor, self.breakers, self.links, LIMITS, self.timelines, self.fairness
        )
        for engine in engines or (M0, M1):
            self.status(engine)

    def status(self, engine: str, **numbers: object) -> None:
        self.monitor.observe(sender_of(engine), make_status(engine, **numbers), 0.0)

    def waiting(self, name: str = "r", num_tokens: int = 100, **fields: object) -> InFlightRequest:
        spec = make_spec(name, num_tokens, **fields)
        self.fairness.arrived("", 0.0)
        request = InFlightRequest.of(spec, self.timelines.arrived(spec, 0.0), 0.0, self.lengths.predict(spec))
        self.requests.add(request)
        return request

    def recovering(self, now: float) -> InFlightRequest:
        """One that lost its engine a promise ago."""
        request = self.waiting()
        request.losses.is_recovering = True
        request.deadline.at = now
        return request

    def try_waiting(self, now: float = 0.0, script: Decision | None = None) -> list[Effect]:
        if script is not None:
            self.policy.script = lambda request, view: script
        return self.routing.try_waiting(now)


def submitted(effects: Iterable[Effect]) -> list[tuple[str, str]]:
    sends = [effect for effect in effects if isinstance(effect, SendToEngine)]
    return [(send.to, send.message.spec.id) for send in sends if isinstance(send.message, Submit)]


def only_error(effects: Iterable[Effect]) -> Exception:
    (error,) = [effect.error for effect in effects if isinstance(effect, Fail)]
    return error


def test_a_dispatch_is_told_to_the_client_then_sent_and_takes_room():
    world = World(P0, D0)
    request = world.waiting()
    route, send = world.try_waiting(script=to(P0, D0))
    assert isinstance(route, SetRoute)
    assert submitted([send]) == [(P0, "r")]
    assert (request.engines, len(world.requests.waiting)) == ((P0, D0), 0)
    view = world.monitor.view()
    assert [view.engines[engine].services[SERVICE].num_free_blocks for engine in (P0, D0)] == [93, 93]
    assert world.routing.try_waiting(0.0) == []


def to_the_first(request: RequestView, view: ClusterView) -> Decision:
    """Choose the first engine of each role, as policies do; decode engines prefill where no other one is left."""
    found = view.candidates(SERVICE, request.num_tokens)
    if found is None:
        return Wait("nobody is there")
    prefill = found.prefill_engines[0]
    return to(prefill.id, found.decode_engines_for(prefill)[0].id)


@pytest.mark.parametrize(
    ("broken", "then"),
    [((), (P0, D0)), ((D0,), (P0, D1)), ((D0, D1), (D0, D0))],
    ids=["whole", "one is cut off", "both are cut off"],
)
def test_a_request_goes_where_engines_reach_each_other(broken: tuple[str, ...], then: tuple[str, str]):
    world = World(P0, D0, D1)
    world.policy.script = to_the_first
    for engine in broken:
        world.links.failed(P0, engine, 0.0)
    request = world.waiting()
    world.try_waiting()
    dispatch = request.assignment.dispatch
    assert dispatch is not None
    assert (dispatch.prefill_engine, dispatch.decode_engine) == then


def test_a_request_that_only_broken_links_would_serve_waits():
    world = World(P0, D0)
    world.policy.script = lambda request, view: to(P0, D0) if P0 in view.engines else GiveUp("late")
    world.links.failed(P0, D0, 0.0)
    request = world.waiting()
    assert world.try_waiting() == []
    assert request.queue.reason == "it would be late, of the engines that it can be sent to now"


def test_requests_are_tried_in_the_policys_order_each_on_what_the_last_one_left():
    world = World()
    for name, num_tokens in (("short", 10), ("long", 300), ("middle", 100)):
        world.waiting(name, num_tokens)
    seen = []

    def script(request: RequestView, view: ClusterView) -> Decision:
        seen.append((request.id, view.engines[M0].num_prefills))
        return to(M0)

    world.policy.script = script
    world.routing.try_waiting(0.0)
    assert seen == [("long", 0), ("middle", 1), ("short", 2)]


def test_what_waits_says_why_once_and_is_written_down_again_only_when_that_changes():
    world = World()
    request = world.waiting()
    for reason in ("busy", "busy", "full"):
        assert world.try_waiting(script=Wait(reason)) == []
        assert request.queue.reason == reason
    assert [one.decision for one in request.timeline.decisions] == [Wait("busy"), Wait("full")]


def test_few_of_a_service_are_tried_in_vain_at_a_time():
    world = World()
    for number in range(TRIES_PER_ROUND + 5):
        world.waiting(f"r{number}")
    world.try_waiting(script=WAIT)
    assert len(world.policy.asked) == TRIES_PER_ROUND


def test_a_rejection_is_the_clients_fault_and_a_refusal_is_overload():
    for decision, kind in ((Reject("too long"), RequestFailed), (GiveUp("late"), Overloaded)):
        world = World()
        world.waiting()
        error = only_error(world.try_waiting(script=decision))
        assert type(error) is kind
        assert len(world.requests) == 0
    assert isinstance(error, Overloaded)


def test_only_requests_that_may_go_anywhere_are_refused():
    for decision in (Reject("too long"), GiveUp("late")):
        world = World()
        request = world.waiting()
        request.losses.avoided = {M0: 9.0}
        assert world.try_waiting(script=decision) == []
        assert request.queue.reason.endswith(", of the engines that it can be sent to now")
        assert only_error(world.routing.try_waiting(9.0)) is not None


def test_a_policy_does_not_see_engines_that_a_request_avoids_or_that_fail():
    world = World(M0, M1, P0)
    world.waiting().losses.avoided = {M0: 9.0}
    for now in range(4):
        world.breakers.failed("other", [M1], float(now))
    seen = set()

    def script(request: RequestView, view: ClusterView) -> Decision:
        seen.update(engine.id for engine in view.serving(SERVICE))
        return WAIT

    world.policy.script = script
    world.routing.try_waiting(3.0)
    assert seen == {P0}


def test_what_had_begun_runs_wherever_it_can_once_its_promise_is_over():
    world = World()
    world.recovering(now=7.0)
    assert world.try_waiting(6.9, script=WAIT) == []
    assert [name for _, name in submitted(world.routing.try_waiting(7.0))] == ["r"]


def test_rounds_are_waited_for_but_not_by_what_is_overdue():
    world = World(policy=InRounds())
    world.waiting("new", num_tokens=300)
    assert world.routing.next_opening() == 5.0
    world.recovering(now=2.0)
    assert [name for _, name in submitted(world.routing.try_waiting(3.0))] == ["r"]
    assert world.policy.asked == []
    assert submitted(world.routing.try_waiting(5.0)) == [(M0, "new")]
    assert world.routing.next_opening() is None


def test_the_next_slice_is_had_in_turn():
    world = World(policy=InRounds())
    world.recovering(now=2.0).queue.has_slice_ended = True
    assert world.routing.try_waiting(3.0) == []
    assert submitted(world.routing.try_waiting(5.0)) == [(M0, "r")]


def test_engines_are_asked_now_and_then_to_give_back_what_has_not_begun():
    world = World()
    request, begun = world.waiting(), world.waiting("begun")
    world.routing.try_waiting(0.0)
    for one in (request, begun):
        one.assignment.own(M0)
    begun.timeline.delivered.first_at = 0.0
    (effect,) = world.routing.recall(1.0)
    assert isinstance(effect, SendToEngine)
    assert (effect.to, effect.message) == (M0, Recall("r", request.assignment.any_epoch))
    assert world.routing.recall(2.0) == []
    request.assignment.was_recalled = False
    assert world.routing.recall(2.0 + RECALL_S / 2) == []
    assert len(world.routing.recall(2.0 + RECALL_S)) == 1


def test_a_policy_learns_what_left_its_engines_and_how_late_requests_may_be():
    world = World()
    request = world.waiting()
    world.routing.try_waiting(0.0)
    world.requests.wait_again(request, (), 1.0)
    assert (world.policy.gone, world.routing.grace_s) == (["r"], 0.5)


# --- what cannot be placed


@pytest.mark.parametrize(("now", "has_expired"), [(0.9, False), (1.0, True)])
def test_what_waits_ends_at_its_deadline(now: float, has_expired: bool):
    world = World()
    world.waiting()
    effects = world.routing.end_expired(now)
    assert bool(effects) == has_expired
    if has_expired:
        assert str(only_error(effects)) == "no engine could take the request within 1.0 s"


def test_without_engines_the_refusal_says_so():
    world = World()
    for engine in (M0, M1):
        world.status(engine, seq=2, state=ProcessState.STARTING)
    world.waiting()
    assert isinstance(only_error(world.routing.end_expired(1.0)), NoEngines)


@pytest.mark.parametrize(("num_blocks", "engine_seen_at"), [(7, 3.0), (6, -1.0)])
def test_what_had_begun_waits_as_long_as_an_engine_could_take_it(num_blocks: int, engine_seen_at: float):
    world = World(M0)
    world.status(M0, seq=2, num_blocks=num_blocks)
    request = world.recovering(now=2.0)
    request.queue.engine_seen_at = -1.0
    world.routing.end_expired(3.0)
    assert request.queue.engine_seen_at == engine_seen_at
