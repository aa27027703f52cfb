"""What a policy sees: the living engines, by their statuses and by what this gateway has just sent them.

A status is old the moment it arrives. The predicted end of running prefills comes nearer with its age, and slack
melts. What this gateway has sent and the engine has not yet counted is added, so that a burst does not herd onto the
engine that looked idle.

The views of engines are structs rather than dataclasses because every decision makes one an engine: a frozen dataclass
takes three times as long to make.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from engines.costs import prefill_s
from mesh.messages import EngineStatus, PrefillCost, ProcessState, Role, ServiceStatus


@dataclass(frozen=True, slots=True)
class Reservation:
    """Work that this gateway sent to an engine and the engine's last status does not count yet."""

    request: str
    engine: str
    service: str
    num_tokens: int  # of KV that it will hold
    prefill_s: float | None  # predicted; None: the engine only decodes it


class ServiceView(msgspec.Struct, frozen=True):
    """One service's KV pool on one engine, net of reservations, and what prefills cost there."""

    num_blocks: int
    num_free_blocks: int
    block_size: int  # tokens
    prefill_cost: PrefillCost

    @property
    def watermark(self) -> float:
        """Fraction of KV blocks in use."""
        return (self.num_blocks - self.num_free_blocks) / self.num_blocks if self.num_blocks else 1.0

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def can_ever_hold(self, num_tokens: int) -> bool:
        return self.blocks_for(num_tokens) <= self.num_blocks

    def can_hold(self, num_tokens: int) -> bool:
        return self.blocks_for(num_tokens) <= self.num_free_blocks


class EngineView(msgspec.Struct, frozen=True):
    """One living engine, as of the view's time."""

    id: str
    role: Role
    state: ProcessState
    services: Mapping[str, ServiceView]
    age_s: float  # of the status behind this
    num_running: int  # requests in the decode batch
    num_prefills: int  # running, waiting and reserved
    num_tokens: int  # in flight: context tokens of all requests, reserved ones included
    backlog_s: float  # until all prefills known here have ended (Tropical: PredExeEndTime - now)
    min_slack_s: float | None  # of its running decodes, before the backlog; None: nothing decodes

    def prefill_s(self, service: str, num_tokens: int) -> float:
        """p(L): predicted seconds of a prefill of that length, nothing cached."""
        return prefill_s(self.services[service].prefill_cost, num_tokens)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All living engines by id, in the order of their ids."""

    engines: Mapping[str, EngineView]

    def serving(self, service: str) -> list[EngineView]:
        """The engines that take requests of a service: ready ones that have it."""
        return [
            engine
            for engine in self.engines.values()
            if engine.state is ProcessState.READY and service in engine.services
        ]

    def without(self, engines: Collection[str]) -> "ClusterView":
        if not engines:
            return self
        return replace(self, engines={id_: engine for id_, engine in self.engines.items() if id_ not in engines})


@dataclass(frozen=True, slots=True)
class RequestView:
    """What a policy may know of a request. Times are on the gateway's clock."""

    id: str
    service: str
    num_tokens: int  # to compute before its next token: prompt, and what was generated before a recovery
    arrived_at: float
    deadline: float  # d: when its first token (after a recovery: its next one) is due
    priority: int = 0


def engine_view(
    id_: str,
    status: EngineStatus,
    age_s: float,
    reservations: Sequence[Reservation],
    unreserved: Mapping[str, ServiceView] | None = None,
) -> EngineView:
    """A status brought up to the present, plus reservations. ``unreserved``: `service_views` without any, if known."""
    prefills = [one.prefill_s for one in reservations if one.prefill_s is not None]
    reported_s = status.prefill_remaining_s + status.prefill_waiting_s
    return EngineView(
        id=id_,
        role=status.role,
        state=status.state,
        services=service_views(status, reservations) if reservations or unreserved is None else unreserved,
        age_s=age_s,
        num_running=status.num_running,
        num_prefills=int(status.prefill_remaining_s > 0) + status.num_waiting + len(prefills),
        num_tokens=status.num_tokens + sum(one.num_tokens for one in reservations),
        backlog_s=max(0.0, reported_s - age_s) + sum(prefills),
        min_slack_s=None if status.min_slack_s is None else status.min_slack_s - age_s,
    )


def service_views(status: EngineStatus, reservations: Sequence[Reservation]) -> Mapping[str, ServiceView]:
    """By name."""
    return {service.name: _service_view(service, reservations) for service in status.services}


def _service_view(status: ServiceStatus, held: Iterable[Reservation]) -> ServiceView:
    reserved = sum(-(-r.num_tokens // status.block_size) for r in held if r.service == status.name)
    return ServiceView(
        status.num_blocks, max(0, status.num_free_blocks - reserved), status.block_size, status.prefill_cost
    )
