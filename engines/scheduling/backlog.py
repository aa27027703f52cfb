"""The prefills of an engine that are not done: how many, how long they will take, and when each is due."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

from engines.costs.linear import decode_step_s
from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import GoesBefore
from engines.scheduling.scheduler import LocalScheduler
from engines.scheduling.service import Service
from engines.scheduling.step import Step
from engines.transfers.outgoing import Departures
from mesh.wire.requests import Holding
from mesh.wire.status import MOST_PREFILLS, PendingPrefill


class Prefill(msgspec.Struct, frozen=True):
    """A prefill that is not done. ``left_s``: predicted, by the tokens that no step before the present one has
    computed.
    """

    request: EngineRequest
    service: Service
    left_s: float


class ToldPrefill(msgspec.Struct, frozen=True):
    """A prefill with what a status would tell of it: less of it is left if the present step computes it."""

    told: PendingPrefill
    request: EngineRequest
    service: Service

    @property
    def left_s(self) -> float:
        return self.told.left_s


class Joining(msgspec.Struct, frozen=True):
    """One that will decode here. ``ends_s``: of prefills, its own included, until its first token."""

    request: EngineRequest
    ends_s: float


class Backlog:
    """The backlog of prefills over all services of an engine."""

    def __init__(
        self, services: Mapping[str, Service], schedulers: Mapping[str, LocalScheduler], departures: Departures
    ) -> None:
        self._services = services
        self._schedulers = schedulers
        self._departures = departures

    def not_started(self, service: Service) -> tuple[EngineRequest, ...]:
        queue = service.queue
        return (*queue.not_begun, *self._departures.reserving(service.name))

    def places(self, requests: Iterable[EngineRequest]) -> list[Holding]:
        """Return where these stand, in the order of the queues; a scheduler may let others pass."""
        queues = [self.not_started(service) for service in self._services.values()]
        queues += [tuple(service.queue.fillers.all()) for service in self._services.values()]
        ahead = {request: index for queue in queues for index, request in enumerate(queue)}
        return [Holding(request.id, request.epoch.attempt, ahead.get(request)) for request in requests]

    def waiting_s(self, service: Service) -> float:
        """Return the predicted seconds of one service's prefills that have not started."""
        return sum(map(service.prefill_s, self.not_started(service)))

    def remaining_s(self, step: Step | None, now: float) -> float:
        """Return the predicted seconds left of started prefills, less what the present step has done by now."""
        left_s = sum([prefill.left_s for prefill in self._started()])
        return max(left_s - (0.0 if step is None else step.prefill_done_s(now)), 0.0)

    def ahead_s(self, service: Service, request: EngineRequest, step: Step | None, now: float) -> float:
        """Return the predicted seconds until the prefill of a newcomer would be done."""
        return self.remaining_s(step, now) + self.waiting_s(service) + service.prefill_s(request)

    def line_s(self, goes_before: GoesBefore) -> float:
        """Return the predicted seconds of those that go before a newcomer: of their prompts, and of their decodes until
        the last of them has likely ended.
        """
        line_s = sum([one.left_s for one in (*self._waiting(), *self._started()) if goes_before(one.request) > 0])
        for service in self._services.values():
            decodes = [(request, most_s) for request in service.decoding() if (most_s := goes_before(request))]
            if decodes:
                context = sum([len(request.tokens) for request, _ in decodes])
                step_s = decode_step_s(service.cost.current.decode, len(decodes), context)
                line_s += max([min(most_s, step_s * request.likely_left) for request, most_s in decodes])
        return line_s

    def account(self, step: Step | None, now: float, *, has_started: bool, wants_joining: bool) -> "BacklogAccount":
        """All that a status tells of it. ``has_started``: whether any has. ``joining`` is empty unless it is wanted."""
        if not has_started and self._departures.is_idle and not any(map(_is_waited_for, self._services.values())):
            return NOTHING
        waiting, started = self._waiting(), self._started() if has_started else []
        if not waiting and not started:
            return NOTHING
        done_s = 0.0 if step is None else step.prefill_done_s(now)
        return BacklogAccount(
            len(waiting),
            sum([prefill.left_s for prefill in waiting]),
            max(sum([prefill.left_s for prefill in started]) - done_s, 0.0),
            *self._pending([*waiting, *started], step, done_s, now, wants_joining=wants_joining),
        )

    def _waiting(self) -> list[Prefill]:
        return [
            Prefill(request, service, service.prefill_s(request))
            for service in self._services.values()
            for request in self.not_started(service)
        ]

    def _started(self) -> list[Prefill]:
        return [
            Prefill(request, service, service.prefill_s(request))
            for service in self._services.values()
            for places in (service.queue.running, service.queue.loading)
            for request in places
            if not request.is_decoding
        ]

    def by_due(self, step: Step | None, now: float) -> list[ToldPrefill]:
        """Return all that are not done, those that are due first first."""
        done_s = 0.0 if step is None else step.prefill_done_s(now)
        due = self._due([*self._waiting(), *self._started()], step, done_s, now)
        due.sort(key=_told)
        return due

    def _due(self, prefills: list[Prefill], step: Step | None, done_s: float, now: float) -> list[ToldPrefill]:
        """What the present step has done by now is off."""
        first = step.prompts[0].request if step is not None and step.prompts else None
        running_s = {} if step is None else step.prefills_left_s(now)
        due = list[ToldPrefill]()
        for prefill in prefills:
            request, service, left_s = prefill.request, prefill.service, prefill.left_s
            if not request.is_decoding:
                still_s = max(0.0, left_s - done_s) if request is first else left_s
                due_at = self._schedulers[service.name].due_at(request, still_s, now)
                told = PendingPrefill(due_at - now, still_s, request.spec.priority, running_s.get(request, 0.0))
                due.append(ToldPrefill(told, request, service))
        return due

    def _pending(
        self, prefills: list[Prefill], step: Step | None, done_s: float, now: float, *, wants_joining: bool
    ) -> tuple[list[PendingPrefill], list[Joining]]:
        """Those that are due first, and those that will decode here."""
        pending = self._due(prefills, step, done_s, now)
        if not wants_joining:
            return sorted([one.told for one in pending])[:MOST_PREFILLS], []
        pending.sort(key=_told)
        joining, ends_s = list[Joining](), 0.0
        for one in pending:
            ends_s += one.told.left_s
            if one.request.decode_engine is None:
                joining.append(Joining(one.request, ends_s))
        return [one.told for one in pending[:MOST_PREFILLS]], joining


class BacklogAccount(msgspec.Struct, frozen=True):
    num_waiting: int
    waiting_s: float
    remaining_s: float
    pending: list[PendingPrefill]
    joining: list[Joining]


NOTHING = BacklogAccount(0, 0.0, 0.0, [], [])


_told = attrgetter("told")


def _is_waited_for(service: Service) -> bool:
    return bool(service.queue.num_not_begun)
