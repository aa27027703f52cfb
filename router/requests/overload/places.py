"""Gives new requests their places in a gateway: within its bounds, and so that each tenant keeps its share of them."""

from typing import Final

from mesh.wire.requests import RequestSpec
from router.effects import Effect
from router.requests.in_flight_requests import InFlightRequests
from router.requests.limits import DispatchLimits
from router.requests.overload.fairness import LAST_PLACES, Fairness
from router.requests.overload.shedding import overloaded
from router.view.monitor import Monitor

FILLER_PLACES: Final = 4  # requests without promises are at most one for so many with promises


class GatewayPlaces:
    """Gives requests places, and refuses those for which there is none."""

    def __init__(
        self, in_flight: InFlightRequests, limits: DispatchLimits, fairness: Fairness, monitor: Monitor
    ) -> None:
        self._in_flight = in_flight
        self._limits = limits
        self._fairness = fairness
        self._monitor = monitor

    def __repr__(self) -> str:
        return f"<GatewayPlaces {len(self._in_flight)} of {self._limits.max_requests} are taken>"

    def make(self, spec: RequestSpec, tenant: str, now: float) -> list[Effect]:
        """Make a place for a new request. Where a bound is reached, one of a tenant that has more than its share is
        refused instead; if none is, raise `Overloaded`.

        One without promises takes no place from requests with promises, and is no part of what tenants share.
        """
        if spec.is_filler:
            yielding, reason = None, self._why_no_filler()
        else:
            self._fairness.arrived(tenant, now)
            yielding, reason = None, self._why_full(tenant)
            if reason and (yielding := self._fairness.who_yields(tenant, tuple(self._in_flight.waiting))) is not None:
                reason = f"{reason}, and others want their share"
        if not reason:
            return []
        refused = spec if yielding is None else yielding.spec
        error = overloaded(self._monitor.view(), refused.service, reason, now)
        if yielding is None:
            raise error
        return [self._in_flight.fail(yielding, error, now)]

    def _why_no_filler(self) -> str:
        num_fillers = self._in_flight.num_fillers
        is_full = num_fillers >= max(1, self._limits.max_requests // FILLER_PLACES)
        return f"{num_fillers} lines of batches run" if is_full else ""

    def _why_full(self, tenant: str) -> str:
        num_places = self._limits.max_requests
        if self._fairness.has_its_share(tenant, num_places):
            num_places -= num_places // LAST_PLACES
        num_requests = len(self._in_flight) - self._in_flight.num_fillers
        if num_requests >= num_places:
            return f"{num_requests} requests are in flight"
        if len(self._in_flight.waiting) >= self._limits.max_waiting:
            return f"{self._limits.max_waiting} requests wait already"
        return ""
