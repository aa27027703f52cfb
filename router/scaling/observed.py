"""Observes what services are asked for now, from the sums that gateways publish."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus, ServiceTally
from router.placement.observe.bursts import WINDOW_S
from router.placement.observe.service_monitor import ServiceMonitor
from router.placement.observe.traffic import Moments
from router.scaling.arrivals import ArrivalRate

REQUESTS = 500.0  # that means are made of; older ones count less and less
NUM_DEVIATIONS = 2.0  # standard errors that are added to a rate
LEAST_S = 0.25  # between two looks


@dataclass(slots=True)
class _Sums:
    """Sums of what requests have, and of its squares."""

    number: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, number: int, total: float, squares: float = 0.0) -> None:
        keeps = min(1.0, max(0.0, (REQUESTS - number) / self.number)) if self.number else 0.0
        self.number = keeps * self.number + number
        self.total = keeps * self.total + total
        self.squares = keeps * self.squares + squares

    @property
    def mean(self) -> float:
        return self.total / self.number if self.number else 0.0

    @property
    def moments(self) -> Moments:
        if not self.number:
            return Moments(0.0, 0.0)
        return Moments(self.mean, max(0.0, self.squares / self.number - self.mean * self.mean) ** 0.5)


@dataclass(slots=True)
class ObservedService:
    """What was observed of one service: ``inputs`` and ``outputs`` in tokens, ``cached`` tokens of a prompt, and what
    its requests were promised, in seconds. ``ended`` and ``late``: requests since `ObservedServices.judge` was called
    last.
    """

    rate: ArrivalRate = field(default_factory=ArrivalRate)
    inputs: _Sums = field(default_factory=_Sums)
    outputs: _Sums = field(default_factory=_Sums)
    cached: _Sums = field(default_factory=_Sums)
    ttft: _Sums = field(default_factory=_Sums)
    tpot: _Sums = field(default_factory=_Sums)
    ended: int = 0
    late: int = 0
    has_changed: bool = False  # its rate, at the last look

    def add(self, tally: ServiceTally, span_s: float) -> None:
        self.has_changed = self.rate.observe(tally.arrived, span_s)
        self.inputs.add(tally.arrived, tally.input_tokens, tally.input_squares)
        self.outputs.add(tally.answered, tally.output_tokens, tally.output_squares)
        self.cached.add(tally.ended, tally.cached_tokens)
        self.ttft.add(tally.arrived, tally.promised_ttft_s)
        self.tpot.add(tally.arrived, tally.promised_tpot_s)
        self.ended += tally.ended
        self.late += tally.late


class ObservedServices:
    """What was observed of all services, all gateways together."""

    def __init__(self, now: float) -> None:
        self._monitor = ServiceMonitor(now, WINDOW_S)
        self._looked_at = now
        self._services: dict[str, ObservedService] = {}
        self._changed_at: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<ObservedServices {sorted(self._services)}>"

    def observe(self, sender: Sender, status: GatewayStatus, now: float) -> None:
        self._monitor.observe(sender, status, now)

    def look(self, now: float) -> None:
        """Take what came since the last look."""
        span_s = now - self._looked_at
        if span_s < LEAST_S:
            return
        tallies = self._monitor.observed(now).services
        for name in tallies.keys() | self._services.keys():
            asked = self._services.setdefault(name, ObservedService())
            asked.add(tallies.get(name, ServiceTally(name)), span_s)
            if asked.has_changed:
                self._changed_at[name] = now
        self._monitor.begin(now)
        self._looked_at = now

    def get(self, service: str) -> ObservedService | None:
        return self._services.get(service)

    def changed_at(self, service: str) -> float:
        """Return when its rate was last seen to have changed."""
        return self._changed_at.get(service, -inf)

    def judge(self) -> Iterator[tuple[str, int, int]]:
        """Requests of each service that ended since the last call, and those of them that were late."""
        for name, asked in self._services.items():
            yield name, asked.ended, asked.late
            asked.ended = asked.late = 0
