"""Folds engine statuses, membership and this gateway's own dispatches into `ClusterView`s."""

from collections.abc import Iterable, Mapping

import msgspec

from mesh.membership.membership import Lost, Membership, Observation, Renewed, Restarted, Stale
from mesh.wire.frames import Sender
from mesh.wire.status import EngineStatus, GatewayStatus
from router.view.cluster_view import ClusterView, MeshPeers
from router.view.engine_view import FORESEEN_S, EngineView, engine_view, have_same_place
from router.view.engine_work import Reservation
from router.view.gateways import OtherGateways
from router.view.reservations import Reservations

GAPS_FORESEEN = 1.25  # of statuses: one may be a little late


class HeardStatus(msgspec.Struct, frozen=True):
    """An engine's last status and when it arrived."""

    status: EngineStatus
    received_at: float


class Monitor:
    """One gateway's knowledge of the engines, and of the other gateways. Times are on its own clock.

    ``status_gap_s``: for so long engines may keep news to themselves.
    """

    def __init__(self, lease_s: float, gateway: str = "", status_gap_s: float = 0.0) -> None:
        self._gateway = gateway
        self._status_gap_s = status_gap_s
        self._foreseen_s = max(FORESEEN_S, GAPS_FORESEEN * status_gap_s)
        self._membership = Membership(lease_s)
        self._others = OtherGateways(lease_s)
        self._has_new_peers = False
        self._heard: dict[str, HeardStatus] = {}
        self._reservations = Reservations()
        self._changed: set[str] = set()  # engines whose view is to be made anew
        self._views: dict[str, EngineView] = {}  # in the order of their ids
        self._view = ClusterView({})

    def __repr__(self) -> str:
        return f"<Monitor {self._membership!r} {self._others!r} {self._reservations!r}>"

    @property
    def may_be_late(self) -> bool:
        """Return whether engines may keep news to themselves for a while."""
        return self._status_gap_s > 0

    @property
    def statuses(self) -> Mapping[str, HeardStatus]:
        """The statuses of the living engines, by id."""
        return self._heard

    def observe(self, sender: Sender, status: EngineStatus, now: float) -> Observation:
        """Take a status. Those of old incarnations are `Stale`, and so are those that a newer one overtook; these are
        still signs of life.
        """
        observation, engine = self._membership.observe(sender, now), sender.process
        if isinstance(observation, Renewed):  # as nearly always
            known = self._heard.get(engine)
            if known is not None and status.seq < known.status.seq:
                return Stale(sender)
        elif isinstance(observation, Stale):
            return observation
        elif isinstance(observation, Restarted):
            self._forget(engine)
        self._heard[engine] = HeardStatus(status, now)
        self._reservations.settle(engine, status.seq)
        self._changed.add(engine)
        return observation

    def hear_gateway(self, sender: Sender, status: GatewayStatus, now: float) -> None:
        """Take the status of another gateway."""
        self._has_new_peers |= self._others.hear(sender, status, now)

    def renew(self, sender: Sender, now: float) -> None:
        """A pulse of an engine or a gateway: it lives, though it says nothing new."""
        self._membership.renew(sender, now)
        self._others.renew(sender, now)

    def expire(self, now: float) -> list[Lost]:
        """Engines whose lease has ended; they leave the view."""
        self._has_new_peers |= self._others.expire(now)
        lost = self._membership.expire(now)
        for event in lost:
            self._forget(event.sender.process)
        return lost

    def declare_dead(self, ended: Sender) -> Lost | None:
        """An incarnation of an engine has ended: it leaves the view; a newer one stays. Or one of a gateway."""
        self._has_new_peers |= self._others.declare_dead(ended)
        lost = self._membership.declare_dead(ended)
        if lost is not None:
            self._forget(lost.sender.process)
        return lost

    def next_deadline(self) -> float | None:
        ours, others = self._membership.next_deadline(), self._others.next_deadline()
        if ours is None or others is None:
            return others if ours is None else ours
        return min(ours, others)

    def _forget(self, engine: str) -> None:
        self._heard.pop(engine, None)
        self._reservations.drop(engine)
        self._changed.add(engine)

    def is_alive(self, engine: str) -> bool:
        return engine in self._heard

    def reserve(self, reservations: Iterable[Reservation]) -> None:
        """Count dispatches that are about to be sent."""
        for reservation in reservations:
            self._reservations.add(reservation)
            self._changed.add(reservation.engine)

    def accepted(self, request: str, engine: str, status_seq: int) -> None:
        """An engine owns the request and counts it from that status on."""
        self._reservations.accept(request, engine, status_seq, self._seq_of(engine))
        self._changed.add(engine)

    def release(self, request: str) -> None:
        """The request is not where it was sent."""
        self._changed |= self._reservations.release(request)

    def began(self, request: str) -> None:
        """Tokens of the request came: its engines count it, from their next statuses on where those may wait."""
        if not self.may_be_late:
            self.release(request)
        else:
            self._reservations.count_from_next(request, self._seq_of)

    def _seq_of(self, engine: str) -> int | None:
        heard = self._heard.get(engine)
        return None if heard is None else heard.status.seq

    def view(self) -> ClusterView:
        """The engines as of the last event, for any moment after it."""
        if self._changed or self._has_new_peers:
            changed, self._changed = self._changed, set()
            only_loads = self._refresh(changed) and not self._has_new_peers
            self._has_new_peers = False
            views = dict(self._views)
            self._view = self._view.with_loads(views, changed) if only_loads else self._anew(views)
        return self._view

    def _anew(self, views: Mapping[str, EngineView]) -> ClusterView:
        return ClusterView(views, peers=MeshPeers.of(self._gateway, self._others.ready, views.values()))

    def _refresh(self, changed: Iterable[str]) -> bool:
        """Make the views of these anew. Whether nobody came, went or changed its place among the others."""
        has_new, only_loads = False, True
        for engine in changed:
            known, heard = self._views.get(engine), self._heard.get(engine)
            if heard is not None:
                held = self._reservations.of(engine)
                view = engine_view(engine, heard.status, heard.received_at, held, known, self._foreseen_s)
                self._views[engine] = view
                has_new = has_new or known is None
                only_loads = only_loads and known is not None and have_same_place(view, known)
            elif known is not None:
                del self._views[engine]
                only_loads = False
        if has_new:
            self._views = dict(sorted(self._views.items()))
        return only_loads
