"""Folds engine statuses, membership and this gateway's own dispatches into `ClusterView`s."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mesh.membership import Joined, Lost, Membership, Observation, Restarted, Stale
from mesh.messages import EngineStatus, Sender
from router.reservations import Reservations
from router.view import ClusterView, EngineView, Reservation, ServiceView, engine_view, service_views


@dataclass(frozen=True, slots=True)
class Heard:
    """An engine's last status and when it arrived."""

    status: EngineStatus
    received_at: float


class Monitor:
    """One gateway's knowledge of the engines. Times are on its own clock."""

    def __init__(self, lease_s: float) -> None:
        self._membership = Membership(lease_s)
        self._heard: dict[str, Heard] = {}
        self._unreserved: dict[str, Mapping[str, ServiceView]] = {}  # of the last status, once it was looked at
        self._reservations = Reservations()

    def __repr__(self) -> str:
        return f"<Monitor {self._membership!r} {self._reservations!r}>"

    @property
    def statuses(self) -> Mapping[str, Heard]:
        """Of the living engines, by id."""
        return self._heard

    def observe(self, sender: Sender, status: EngineStatus, now: float) -> Observation:
        """Take a status. Statuses of old lives, and those that were overtaken by a newer one, change nothing."""
        observation = self._membership.observe(sender, now)
        if isinstance(observation, Stale):
            return observation
        if isinstance(observation, Restarted):
            self._forget(sender.process)
        known = self._heard.get(sender.process)
        if known is None or isinstance(observation, Joined) or status.seq >= known.status.seq:
            self._heard[sender.process] = Heard(status, now)
            self._unreserved.pop(sender.process, None)
            self._reservations.settle(sender.process, status.seq)
        return observation

    def expire(self, now: float) -> list[Lost]:
        """Engines whose lease has ended; they leave the view."""
        lost = self._membership.expire(now)
        for event in lost:
            self._forget(event.sender.process)
        return lost

    def next_deadline(self) -> float | None:
        return self._membership.next_deadline()

    def _forget(self, engine: str) -> None:
        self._heard.pop(engine, None)
        self._unreserved.pop(engine, None)
        self._reservations.drop(engine)

    def is_alive(self, engine: str) -> bool:
        return engine in self._heard

    def reserve(self, reservations: Iterable[Reservation]) -> None:
        """Count dispatches that are about to be sent."""
        self._reservations.add(reservations)

    def accepted(self, request: str, engine: str, status_seq: int) -> None:
        """An engine owns the request and counts it from that status on."""
        self._reservations.accept(request, engine, status_seq)
        if heard := self._heard.get(engine):
            self._reservations.settle(engine, heard.status.seq)

    def release(self, request: str) -> None:
        """The request is not where it was sent, or beyond doubt counted there."""
        self._reservations.release(request)

    def view(self, now: float) -> ClusterView:
        return ClusterView({engine: self._engine(engine, heard, now) for engine, heard in sorted(self._heard.items())})

    def _engine(self, engine: str, heard: Heard, now: float) -> EngineView:
        unreserved = self._unreserved.get(engine)
        if unreserved is None:
            unreserved = self._unreserved[engine] = service_views(heard.status, ())
        return engine_view(engine, heard.status, now - heard.received_at, self._reservations.of(engine), unreserved)
