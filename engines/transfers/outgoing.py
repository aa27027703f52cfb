"""An engine's outgoing transfers: requests that leave by hand-over, once their prompt is computed, or by migration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import msgspec
import structlog

from engines.engine_request import EngineRequest
from engines.scheduling.service import Service, min_or_none
from engines.settings import EngineSettings
from engines.transfers.move_cost import MoveCosts
from engines.transfers.outcomes import (
    Admitted,
    EngineOutcome,
    HandedOver,
    Migrated,
    NotHandedOver,
    NotMigrated,
    Unpinned,
)
from kvtransfer.protocol import (
    BlocksReady,
    Cancelled,
    CommitRequested,
    Completed,
    Exported,
    PeerLost,
    ReleaseSource,
    SendEffect,
    TransferFailed,
)
from kvtransfer.send import SendState, SendTransfer
from mesh.wire.requests import Epoch, Found, RefusalCode
from mesh.wire.transfers import Abort, Committed, Declined, Extended, Reserve, Reserved, Taken

RESERVED_AHEAD = 4  # transfers of a service open at a time, beside those of prompts that are passed

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Outgoing:
    """A request that is to leave. ``committed``: it is not computed here any more, since ``stopped_at``."""

    machine: SendTransfer
    request: EngineRequest
    service: Service
    epoch: Epoch  # of the peer
    began_at: float
    is_migration: bool = False
    committed: bool = False
    stopped_at: float = 0.0


@dataclass(slots=True)
class MigrationTally:
    """How this engine's outgoing migrations ended."""

    num_completed: int = 0
    num_aborted: int = 0
    last_abort: str | None = None

    def completed(self, request: str, to: str, num_kept_tokens: int) -> None:
        self.num_completed += 1
        log.info("migrated a request", request=request, to=to, num_kept_tokens=num_kept_tokens)

    def aborted(self, request: str, to: str, reason: str) -> None:
        self.num_aborted += 1
        self.last_abort = f"{request} to {to}: {reason}"
        log.info("did not migrate a request", request=request, to=to, reason=reason)


class Departures:
    """Answers events with effects and with what became of the requests (`engines.transfers.outcomes`)."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._outgoing: dict[str, Outgoing] = {}
        self._lost: set[str] = set()  # processes that have not been heard since
        self._unasked_until: dict[str, float] = {}  # engines that did not answer when they were asked last
        self._num_migrations = 0  # started, which numbers them
        self._deadline: float | None = None  # the machines' earliest
        self._has_changed = False  # since that was worked out
        self.tally = MigrationTally()
        self.costs = MoveCosts()

    @property
    def is_idle(self) -> bool:
        return not self._outgoing

    def machines(self) -> list[SendTransfer]:
        return [out.machine for out in self._outgoing.values()]

    def next_deadline(self) -> float | None:
        """Return the next deadline of these transfers. It is asked for after every event, and few events touch any."""
        if self._has_changed:
            self._deadline = min_or_none([out.machine.next_deadline() for out in self._outgoing.values()])
            self._has_changed = False
        return self._deadline

    def migrating(self) -> list[Outgoing]:
        """Return the requests whose migration has not ended, as far as is known."""
        return [out for out in self._outgoing.values() if out.is_migration and _is_under_way(out.machine)]

    def leaving(self) -> list[tuple[str, EngineRequest]]:
        """Return the same as `migrating`: where to, and who."""
        return [(out.machine.peer, out.request) for out in self.migrating()]

    def reserving(self, service: str) -> list[EngineRequest]:
        """Requests for which a decode engine has not answered yet."""
        if not self._outgoing:
            return []
        return [
            out.request
            for out in self._outgoing.values()
            if out.machine.state is SendState.RESERVING and not out.is_migration and out.service.name == service
        ]

    def may_reserve(self, service: str, is_passed: Callable[[EngineRequest], bool]) -> bool:
        """Return whether blocks may be asked for: few enough prompts have some and come first. ``is_passed``: whether
        one of these does not.
        """
        uncommitted = [
            out.request
            for out in self._outgoing.values()
            if out.service.name == service and not out.committed and not out.is_migration
        ]
        if len(uncommitted) < RESERVED_AHEAD:
            return True
        return sum([not is_passed(request) for request in uncommitted]) < RESERVED_AHEAD

    def reserve(self, service: Service, request: EngineRequest, ahead_s: float, now: float) -> list[EngineOutcome]:
        """Ask ``request.decode_engine`` for blocks; ``ahead_s`` is the work predicted until this prefill is done.

        An engine that was lost, or did not answer just now, is not asked: the gateway may hear it, and would wait for
        an answer that cannot come.
        """
        assert request.decode_engine is not None
        if request.decode_engine in self._lost or now < self._unasked_until.get(request.decode_engine, now):
            return [NotHandedOver(request, RefusalCode.PEER_SILENT, f"{request.decode_engine} is not heard here")]
        epoch = request.epoch.handed_over()
        reserve = Reserve(
            transfer=f"{request.id}.{epoch.attempt}.{epoch.hop}",
            spec=msgspec.structs.replace(request.spec, age_s=now - request.arrived_at),
            epoch=epoch,
            num_tokens=len(request.tokens),
            shape=service.shape,
            model=service.identity,
            memory=service.memory,
            deadline_s=self._settings.transfer_deadline_s + 2 * ahead_s,
        )
        service.queue.pinned.add(request)
        return self._start(request.decode_engine, reserve, request, service, now, service.prefill_s(request))

    def migrate(
        self,
        service: Service,
        request: EngineRequest,
        to: str,
        now: float,
        min_freeness: float | None = None,
        *,
        must_leave: bool = False,
    ) -> list[EngineOutcome]:
        """Move a request that decodes, and goes on with it. It may be preempted until it stops for the last stage.

        The other engine declines if that would leave it less than ``min_freeness``. Unless the request ``must_leave``,
        copies spare the decodes of both engines.
        What its gateway may not have been sent yet goes along, as what is generated from now on does.
        """
        epoch = request.epoch.handed_over()
        self._num_migrations += 1
        limits, block_size = self._settings.transfer_limits, service.pool.block_size
        first = request.first_token_at
        spec = msgspec.structs.replace(
            request.spec,
            generated=request.generated[: request.num_delivered],
            age_s=now - request.arrived_at,
            first_token_age_s=None if first is None else now - first,
        )
        reserve = Reserve(
            transfer=f"{request.id}.{epoch.attempt}.{epoch.hop}.{self._num_migrations}",
            spec=spec,
            epoch=epoch,
            num_tokens=len(request.tokens) + limits.headroom_blocks * block_size,
            shape=service.shape,
            model=service.identity,
            memory=service.memory,
            deadline_s=self._settings.transfer_deadline_s + 2 * block_size * service.decode_step_s(),
            is_migration=True,
            min_freeness=min_freeness,
            must_leave=must_leave,
        )
        effects = self._start(to, reserve, request, service, now)
        return effects + self.blocks_ready(request, now)

    def _start(
        self, to: str, reserve: Reserve, request: EngineRequest, service: Service, now: float, anew_s: float = inf
    ) -> list[EngineOutcome]:
        machine = SendTransfer(to, reserve, self._settings.transfer_limits, now, anew_s)
        request.transfer = reserve.transfer
        out = Outgoing(machine, request, service, reserve.epoch, now, reserve.is_migration)
        self._outgoing[reserve.transfer] = out
        return self._after_send(out, machine.start())

    def may_commit(self, request: EngineRequest) -> bool:
        """Return whether a request may stop here: after its prefill at once, or once little of it is left to move."""
        out = self._outgoing.get(request.transfer or "")
        return out is not None and (not out.is_migration or out.machine.is_nearly_done)

    def token_sampled(self, request: EngineRequest, now: float) -> list[EngineOutcome]:
        """Note that what a token was computed from is ready to leave; of a hand-over, the last blocks leave with its
        commit.
        """
        return [] if self.hands_over(request) else self.blocks_ready(request, now)

    def hands_over(self, request: EngineRequest) -> bool:
        out = self._outgoing.get(request.transfer or "")
        return out is not None and not out.is_migration

    def blocks_ready(self, request: EngineRequest, now: float) -> list[EngineOutcome]:
        """More of a request's tokens are computed."""
        out = self._outgoing.get(request.transfer or "")
        if out is None:
            return []
        event = BlocksReady(request.num_computed, tuple(request.blocks))
        return self._after_send(out, out.machine.handle(event, now))

    def commit(self, request: EngineRequest, now: float) -> list[EngineOutcome]:
        """Let the request go: its first token is sampled, or what is left of it to migrate is little."""
        out = self._outgoing.get(request.transfer or "")
        if out is None:
            return []
        out.committed, out.stopped_at = True, now
        out.service.queue.pinned.add(request)
        first = request.first_token_at
        event = CommitRequested(
            request.generated,
            request.num_computed,
            tuple(request.blocks),
            now - request.arrived_at,
            None if first is None else now - first,
            request.logprobs or None,
            Found(request.num_cached, request.brought),
        )
        return self._after_send(out, out.machine.handle(event, now))

    def exported(self, transfer: str, event: Exported, now: float) -> list[EngineOutcome]:
        out = self._outgoing.get(transfer)
        return [] if out is None else self._after_send(out, out.machine.handle(event, now))

    def cancel(self, transfer: str, reason: str, now: float) -> list[EngineOutcome]:
        out = self._outgoing.get(transfer)
        if out is None:
            return []
        was_under_way, num_aborted = _is_under_way(out.machine), self.tally.num_aborted
        effects = self._after_send(out, out.machine.handle(Cancelled(reason), now))
        if out.is_migration and was_under_way and self.tally.num_aborted == num_aborted:
            self.tally.aborted(out.request.id, out.machine.peer, reason)
        return effects

    def _after_send(self, out: Outgoing, effects: Sequence[SendEffect]) -> list[EngineOutcome]:
        self._has_changed = True
        passed: list[EngineOutcome] = []
        for effect in effects:
            match effect:
                case Completed(_, num_kept_tokens) if out.is_migration:
                    self.tally.completed(out.request.id, out.machine.peer, num_kept_tokens)
                    passed.append(Migrated(out.request, out.machine.peer, out.epoch))
                case Completed():
                    passed.append(HandedOver(out.request))
                case TransferFailed(_, _, reason) if out.is_migration:
                    passed.append(self._not_migrated(out, reason))
                case TransferFailed(_, code, reason):
                    passed.append(NotHandedOver(out.request, code, reason))
                case ReleaseSource():
                    out.service.queue.pinned.discard(out.request)
                    passed.append(Unpinned(out.request))
                case _:
                    passed.append(effect)
        if out.machine.is_over:
            self._outgoing.pop(out.machine.id, None)
        return passed

    def _not_migrated(self, out: Outgoing, reason: str) -> EngineOutcome:
        request, to = out.request, out.machine.peer
        self.tally.aborted(request.id, to, reason)
        if out.machine.has_sent_commit:
            return NotHandedOver(request, RefusalCode.UNKNOWN_OWNER, reason)
        request.transfer = None
        return NotMigrated(request, to)

    def concern(self, service: str) -> bool:
        return any(out.service.name == service for out in self._outgoing.values())

    def owns(self, transfer: str, peer: str) -> bool:
        out = self._outgoing.get(transfer)
        return out is not None and out.machine.peer == peer

    def answered(
        self, message: Reserved | Extended | Declined | Taken | Committed | Abort, now: float
    ) -> list[EngineOutcome]:
        """The peer of one of these transfers said something."""
        out = self._outgoing[message.transfer]
        self._unasked_until.pop(out.machine.peer, None)
        was_reserving = out.machine.state is SendState.RESERVING
        effects = self._after_send(out, out.machine.handle(message, now))
        if isinstance(message, Committed) and any(isinstance(effect, Migrated) for effect in effects):
            self.costs.observe(len(out.request.tokens), now - out.began_at, now - out.stopped_at)
        is_admitted = was_reserving and out.machine.state is SendState.OPEN
        if is_admitted and not out.is_migration and not out.request.is_over:
            effects.append(Admitted(out.service, out.request))
        return effects

    def lose_peer(self, process: str, now: float) -> list[EngineOutcome]:
        """A process died, or is not heard any more."""
        self._lost.add(process)
        effects: list[EngineOutcome] = []
        for out in [out for out in self._outgoing.values() if out.machine.peer == process]:
            effects += self._after_send(out, out.machine.handle(PeerLost(), now))
        return effects

    def find_peer(self, process: str) -> None:
        """A process is there, whether it was lost or is new."""
        self._lost.discard(process)

    def expire(self, now: float) -> list[EngineOutcome]:
        effects: list[EngineOutcome] = []
        for out in list(self._outgoing.values()):
            outcomes = self._after_send(out, out.machine.expire(now))
            if any(isinstance(one, NotHandedOver) and one.code is RefusalCode.PEER_SILENT for one in outcomes):
                self._unasked_until[out.machine.peer] = now + self._settings.transfer_limits.reply_s
            effects += outcomes
        return effects


def _is_under_way(machine: SendTransfer) -> bool:
    return not machine.is_over and machine.state is not SendState.LINGERING
