"""Defines what a policy may do or ask for beyond deciding about one request at a time.

A policy has a capability if it derives from its class, or lists an instance of it under `Policy.capabilities`. The
dispatcher asks for the capability (`Policy.offers`) and does without where a policy does not offer it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mesh.rules import Trigger
from mesh.topology.schema import Rescheduling
from mesh.wire.control import SetRole
from mesh.wire.status import Wanted
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView


class Capability:
    """The base of all capabilities."""


@dataclass(frozen=True, slots=True)
class UsesLengths(Capability):
    """It looks at how long answers are expected to be, and so do engines then. ``quantile``: None is the mean.

    ``least``: also at a length that so few of all answers are shorter than; None: it does not.
    """

    quantile: float | None = None
    least: float | None = None


def lengths_for_engines(rules: Rescheduling | None) -> UsesLengths | None:
    """Return what engines look at that reschedule by promise, whatever the policy does; None: at no length."""
    return UsesLengths(least=0.5) if rules is not None and Trigger.PROMISE in rules.triggers else None


class UsesPrefixes(Capability):
    """It looks at what engines have likely cached of a request."""


class ForAlikeEngines(Capability):
    """It is made for engines that each do both phases: a search for a topology splits none by phase."""


class ForSplitEngines(Capability):
    """It is made for engines of one phase each: a search for a topology tries no others."""


class StaysOutOfLine(Capability):
    """It sends nothing to stand in the line of an engine's discipline, and nothing before decodes that cannot wait."""


class SeesGateways(Capability):
    """It looks at what other gateways there are."""


@dataclass(frozen=True, slots=True)
class AllowsLateness(Capability):
    """A request may wait for so long after its deadline."""

    grace_s: float


class ReordersQueue(Capability):
    """It chooses the order in which waiting requests are tried."""

    def rank(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[RequestView]:
        """Return those to try now, in this order. ``waiting`` is in the order of priorities, then of deadlines."""
        raise NotImplementedError


@dataclass(slots=True)
class PlansRounds(Capability):
    """It decides in rounds: what waits is not looked at before ``opens_at``, and is then. It is looked at sooner if
    other engines serve it than did in the last round.
    """

    opens_at: float = 0.0
    _engines: dict[str, frozenset[str]] = field(default_factory=dict)  # of the last round, by service

    def begin(self, services: Iterable[str], view: ClusterView) -> frozenset[str]:
        """A round for these services. Return the engines that serve any of them."""
        self._engines = {service: _serving(service, view) for service in services}
        return frozenset[str]().union(*self._engines.values())

    def is_open(self, view: ClusterView, now: float) -> bool:
        return now >= self.opens_at or any(_serving(name, view) != ids for name, ids in self._engines.items())


def _serving(service: str, view: ClusterView) -> frozenset[str]:
    return frozenset(engine.id for engine in view.serving(service))


class FollowsRequests(Capability):
    """It keeps count of the requests that it sent."""

    def left(self, request: str) -> None:
        """A request that was dispatched is not where it was sent (any more)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A role that an engine is to take. ``message`` is for ``engine``."""

    engine: str
    message: SetRole


class FlipsRoles(Capability):
    """It lets engines take another role."""

    def rebalance(self, view: ClusterView, num_waiting: Mapping[str, int], now: float) -> Sequence[RoleChange]:
        """Return which engines are to take another role, given that so many requests of services found no engine."""
        raise NotImplementedError


class RecallsRequests(Capability):
    """It calls requests back from engines that have not begun them."""

    def recall(
        self, not_begun: Mapping[str, Sequence[RequestView]], view: ClusterView, now: float
    ) -> Sequence[RequestView]:
        """Return which requests to decide anew, of those that were sent and have no token yet.

        They come by the engine that is to decode them.
        """
        raise NotImplementedError


class WantsEngines(Capability):
    """It knows how many more engines the waiting requests would fill."""

    def wanted(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[Wanted]:
        """Return the wanted engines by service and role."""
        raise NotImplementedError
