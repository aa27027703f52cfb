"""Follows which engine has each request: it was accepted, its tokens come, it moved, or its slice is over.

Tokens prove who has a request. They come under the epoch of their owner, and those of an earlier owner are shut out
(`router.requests.token_stream`). Whoever has a request that is over here, or goes on elsewhere, is told to stop.
"""

from collections.abc import Iterable

from mesh.wire.requests import Accepted, Cancel, Delta, Epoch, FinishReason, Moved, SlicesEnded
from router.effects import Deliver, Effect, SendToEngine
from router.history.timelines import Timelines
from router.requests.breakers import Breakers
from router.requests.in_flight_request import InFlightRequest
from router.requests.in_flight_requests import InFlightRequests
from router.requests.links import Links
from router.requests.recovery import Recovery
from router.requests.request_state import ANY_HOP, RequestPhase
from router.requests.token_stream import Broken, Fence
from router.view.monitor import Monitor


class Ownership:
    """Each event returns the effects that it has, in order. Whether anything that waits may go now is told beside them,
    where it depends.
    """

    def __init__(
        self,
        in_flight: InFlightRequests,
        monitor: Monitor,
        breakers: Breakers,
        links: Links,
        timelines: Timelines,
        recovery: Recovery,
    ) -> None:
        self._in_flight = in_flight
        self._monitor = monitor
        self._breakers = breakers
        self._links = links
        self._timelines = timelines
        self._recovery = recovery

    def __repr__(self) -> str:
        return f"<Ownership of {self._in_flight!r}>"

    def accept(self, engine: str, message: Accepted, now: float) -> list[Effect]:
        """An engine took a request that was sent to it."""
        request = self._in_flight.placed(message.request)
        if request is None or message.epoch.attempt != request.assignment.attempt:
            return [SendToEngine(engine, Cancel(message.request, Epoch(message.epoch.attempt, ANY_HOP)))]
        if request.assignment.phase is RequestPhase.SENT:
            request.assignment.phase, request.contact.progress_at = RequestPhase.RUNNING, now
            self._monitor.accepted(request.id, engine, message.status_seq)
            request.timeline.accept(engine, now)
            self._in_flight.arm(request, now)
        return []

    def take_tokens(
        self, sender: str, deltas: Iterable[Delta], now: float, *, holds_back: bool
    ) -> tuple[list[Effect], bool]:
        """Tokens of some requests came. ``holds_back``: others wait until one has begun."""
        effects: list[Effect] = []
        num_waiting, has_begun = len(self._in_flight.waiting), False
        for delta in deltas:
            request = self._in_flight.get(delta.request)
            if request is None:
                effects += _stop_stranger(sender, delta)
            elif not request.assignment.is_waiting:
                is_first = not request.has_begun
                effects += self._take_delta(request, sender, delta, now)
                has_begun |= is_first
        was_interrupted = len(self._in_flight.waiting) > num_waiting
        return effects, was_interrupted or (has_begun and holds_back)

    def _take_delta(self, request: InFlightRequest, sender: str, delta: Delta, now: float) -> list[Effect]:
        stream = request.stream
        epoch = stream.epoch
        if delta.finish is FinishReason.CANCELLED and delta.epoch >= epoch:
            return self._recovery.interrupt(request, f"{sender} cancelled it unasked", (sender,), now, failed=(sender,))
        taken = stream.take(delta, now)
        if isinstance(taken, Fence):
            return [SendToEngine(sender, Cancel(delta.request, taken.epoch))]
        if isinstance(taken, Broken):
            return self._recovery.interrupt(
                request, f"tokens of {sender}: {taken.reason}", (sender,), now, failed=(sender,)
            )
        if stream.epoch != epoch or request.assignment.phase is RequestPhase.SENT:
            self._own(request, sender, now)
        if not request.assignment.is_proven:
            request.assignment.is_proven = True
            if sender in request.engines:
                request.timeline.resume(sender, now)
            self._breakers.succeeded(request.id, sender, now)
        request.contact.progress_at = now
        effects: list[Effect] = []
        if stream.gap_since is not None:
            self._in_flight.arm(request, now)
            effects += self._recovery.probing.fill(request, now)
        for batch in taken:
            self._timelines.delivered(request.timeline, batch, sender, now)
            if batch.finish is not None:
                self._in_flight.finish(request, batch.finish, now)
            effects.append(Deliver(delta.request, batch))
        return effects

    def move(self, message: Moved, now: float) -> tuple[list[Effect], bool]:
        """A migration has ended: should the new owner die before its first token comes, this is how that is noticed."""
        request = self._in_flight.placed(message.request)
        if request is None or message.epoch.attempt != request.assignment.attempt:
            return self._recovery.stop_moved(message), False
        if request.engines == (message.to,) or message.epoch < request.stream.epoch:
            return [], False
        if not self._monitor.is_alive(message.to):
            return self._recovery.interrupt(request, f"{message.to} was lost", (message.to,), now), True
        self._own(request, message.to, now)
        return [], False

    def end_slices(self, message: SlicesEnded, now: float) -> list[Effect]:
        """What has not ended waits for its next slice, with its tokens."""
        for request_id, epoch in message.requests:
            request = self._in_flight.placed(request_id)
            if request is not None and epoch.attempt == request.assignment.attempt and epoch >= request.stream.epoch:
                self._in_flight.wait_again(request, (), now, has_slice_ended=True)
        return []

    def _own(self, request: InFlightRequest, engine: str, now: float) -> None:
        """Tokens came from a new owner: it has the request, and its statuses count it."""
        before = request.engines
        if request.assignment.own(engine):
            if engine in before[1:]:
                self._links.succeeded(before[0], engine)
            request.timeline.change_owner(engine, now)
        self._monitor.began(request.id)


def _stop_stranger(sender: str, delta: Delta) -> list[Effect]:
    """Tokens of a request that is over here: its owner has not heard of it yet."""
    if delta.finish is not None:
        return []
    return [SendToEngine(sender, Cancel(delta.request, Epoch(delta.epoch.attempt, ANY_HOP)))]
