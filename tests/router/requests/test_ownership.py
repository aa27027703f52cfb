"""Who has a request: whose tokens count, who is told to stop, and when others that wait may go."""

from mesh.wire.requests import Accepted, Cancel, Delta, Epoch, FinishReason, Moved, SlicesEnded
from router.effects import Deliver, Effect, SendToEngine
from router.requests.in_flight_request import InFlightRequest
from router.requests.ownership import Ownership
from router.requests.request_state import ANY_HOP, RequestPhase
from tests.router.cluster import D0, M0, M1, P0
from tests.router.requests.test_recovery import NOW
from tests.router.requests.test_recovery import World as RecoveringWorld

STRANGE = "engine-of-nobody"
ALL_OF_IT = Cancel("r", Epoch(0, ANY_HOP))


class World(RecoveringWorld):
    def __init__(self) -> None:
        super().__init__()
        self.ownership = Ownership(
            self.requests, self.monitor, self.breakers, self.links, self.timelines, self.recovery
        )

    def tokens(self, sender: str, *tokens: int, epoch: Epoch | None = None, holds_back: bool = False, **fields: object):
        delta = Delta("r", epoch or Epoch(0), 0, tokens, **fields)
        return self.ownership.take_tokens(sender, [delta], NOW, holds_back=holds_back)


def delivered(effects: list[Effect]) -> list[str]:
    return [effect.request for effect in effects if isinstance(effect, Deliver)]


def test_who_accepts_a_request_has_it_until_its_tokens_come_from_another():
    world = World()
    request = world.sent()
    assert world.ownership.accept(P0, Accepted("r", Epoch(0), 1), NOW) == []
    assert (request.assignment.phase, request.engines) == (RequestPhase.RUNNING, (P0, D0))
    effects, _ = world.tokens(D0, 7, epoch=Epoch(0, 1))
    assert delivered(effects) == ["r"]
    assert request.engines == (D0,)


def test_who_accepts_what_is_over_or_goes_on_elsewhere_is_told_to_stop():
    world = World()
    stop = [SendToEngine(M0, ALL_OF_IT)]
    assert world.ownership.accept(M0, Accepted("r", Epoch(0), 1), NOW) == stop
    request = world.sent()
    request.assignment.attempt = 1
    assert world.ownership.accept(M0, Accepted("r", Epoch(0), 1), NOW) == stop
    assert request.assignment.phase is RequestPhase.SENT


def test_tokens_of_a_stranger_are_answered_by_a_cancel_unless_they_are_its_last():
    world = World()
    assert world.tokens(STRANGE, 7) == ([SendToEngine(STRANGE, ALL_OF_IT)], False)
    assert world.tokens(STRANGE, 7, finish=FinishReason.STOP) == ([], False)


def test_a_first_token_lets_others_go_where_some_are_held_back():
    for holds_back in (False, True):
        world = World()
        world.sent()
        assert world.tokens(P0, 7, holds_back=holds_back)[1] == holds_back
        later = Delta("r", Epoch(0), 1, (8,))
        assert not world.ownership.take_tokens(P0, [later], NOW, holds_back=holds_back)[1], "it had begun"


def test_an_engine_that_cancels_unasked_loses_the_request():
    world = World()
    request = world.running()
    effects, may_go = world.tokens(M0, finish=FinishReason.CANCELLED)
    assert (may_go, request.assignment.is_waiting, delivered(effects)) == (True, True, [])
    assert request.losses.avoids(NOW) == {M0}


def moved(world: World, to: str, epoch: Epoch | None = None) -> tuple[list[Effect], bool, InFlightRequest]:
    request = world.running()
    return *world.ownership.move(Moved("r", epoch or Epoch(0, 1), to), NOW), request


def test_a_request_is_where_it_moved_to():
    effects, may_go, request = moved(World(), M1)
    assert (effects, may_go, request.engines) == ([], False, (M1,))


def test_a_request_that_moved_to_who_is_gone_waits_again():
    _, may_go, request = moved(World(), STRANGE)
    assert may_go
    assert request.assignment.is_waiting


def test_a_move_that_is_older_than_the_tokens_tells_nothing():
    world = World()
    request = world.running()
    request.stream.epoch = Epoch(0, 2)
    assert world.ownership.move(Moved("r", Epoch(0, 1), M1), NOW) == ([], False)
    assert request.engines == (M0,)


def test_a_slice_ends_for_the_attempt_that_it_was_of_alone():
    world = World()
    request = world.running()
    world.ownership.end_slices(SlicesEnded([("r", Epoch(1)), ("unknown", Epoch(0))]), NOW)
    assert not request.assignment.is_waiting
    world.ownership.end_slices(SlicesEnded([("r", Epoch(0))]), NOW)
    assert request.assignment.is_waiting
    assert request.queue.has_slice_ended
