"""An engine's transfers in both directions: feeds the transfer machines, and tells the core how they end.

A request leaves by hand-over, once its prompt is computed, or by migration, while it decodes (docs/migration.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from engines.freeness import with_one_more
from engines.sequence import Sequence as Request
from engines.settings import EngineSettings
from engines.status import Service, min_or_none
from kvtransfer.protocol import (
    Adopt,
    BlocksReady,
    Buffer,
    Cancelled,
    CommitRequested,
    Completed,
    ExportBlocks,
    Exported,
    Failed,
    Grown,
    GrowReserved,
    ImportBlocks,
    Imported,
    NotGrown,
    PeerLost,
    ReceiveEffect,
    ReleaseReserved,
    ReleaseSource,
    Send,
    SendEffect,
    reply_to_unknown,
)
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.send import SendState, SendTransfer
from kvtransfer.transports import TransportError, choose
from mesh.messages import (
    Abort,
    Blocks,
    Commit,
    Declined,
    Epoch,
    Extend,
    MemoryRef,
    RefusalCode,
    Reserve,
    TransferMessage,
)

RESERVED_AHEAD = 4  # transfers of a service open at a time: of the prompt being computed, the next, and some that pass

Effect = Send | ExportBlocks | ImportBlocks

log = structlog.get_logger()


class Owner(Protocol):
    """The core: what it does when transfers end."""

    def adopt(self, service: Service, request: Request, now: float) -> None: ...

    def handed_over(self, request: Request, now: float) -> None: ...

    def not_handed_over(self, request: Request, code: RefusalCode, reason: str, now: float) -> None: ...

    def migrated(self, request: Request, to: str, epoch: Epoch, now: float) -> None: ...

    def not_migrated(self, request: Request, to: str, now: float) -> None: ...

    def unpinned(self, request: Request) -> None: ...

    def freeness(self, service: Service, now: float) -> float: ...


@dataclass(slots=True)
class Outgoing:
    """A request that is to leave. ``committed``: it is not computed here any more."""

    machine: SendTransfer
    request: Request
    service: Service
    epoch: Epoch  # of the peer
    is_migration: bool = False
    committed: bool = False


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


@dataclass(frozen=True, slots=True)
class Incoming:
    machine: ReceiveTransfer
    reserve: Reserve
    service: Service


Transfer = Outgoing | Incoming


class Handovers:
    """``can_open`` tells whether a peer's pool (process, reference) can be mapped here."""

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        can_open: Callable[[str, MemoryRef], bool],
        owner: Owner,
    ) -> None:
        self._settings = settings
        self._services = services
        self._can_open = can_open
        self._owner = owner
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: dict[str, Incoming] = {}
        self._num_migrations = 0  # started, which numbers them
        self.tally = MigrationTally()

    def __repr__(self) -> str:
        return f"<Handovers {[transfer.machine for transfer in self._all()]}>"

    @property
    def is_idle(self) -> bool:
        return not self._outgoing and not self._incoming

    @property
    def num_incoming(self) -> int:
        return len(self._incoming)

    @property
    def num_migrating_in(self) -> int:
        return sum(incoming.reserve.is_migration for incoming in self._incoming.values())

    def expects(self, request: str, attempt: int) -> bool:
        """Whether blocks are kept here for a request that another engine hands over."""
        reserves = (incoming.reserve for incoming in self._incoming.values())
        return any(reserve.spec.id == request and reserve.epoch.attempt == attempt for reserve in reserves)

    def migrating_out(self) -> list[Outgoing]:
        """Those whose end is not known yet."""
        return [out for out in self._outgoing.values() if out.is_migration and _is_under_way(out.machine)]

    def leaving(self) -> list[tuple[str, Request]]:
        """As `migrating_out`: where to, and who."""
        return [(out.machine.peer, out.request) for out in self.migrating_out()]

    def reserving(self, service: str) -> list[Request]:
        """Requests for which a decode engine has not answered yet."""
        return [
            out.request
            for out in self._outgoing.values()
            if out.service.name == service and out.machine.state is SendState.RESERVING and not out.is_migration
        ]

    def may_reserve(self, service: str) -> bool:
        uncommitted = sum(
            out.service.name == service and not out.committed and not out.is_migration
            for out in self._outgoing.values()
        )
        return uncommitted < RESERVED_AHEAD

    # --- sending ------------------------------------------------------------------------------------------------------

    def reserve(self, service: Service, request: Request, ahead_s: float, now: float) -> list[Effect]:
        """Ask ``request.decode_engine`` for blocks; ``ahead_s`` is the work predicted until this prefill is done."""
        assert request.decode_engine is not None
        epoch = request.epoch.handed_over()
        reserve = Reserve(
            transfer=f"{request.id}.{epoch.attempt}.{epoch.hop}",
            spec=msgspec.structs.replace(request.spec, age_s=now - request.arrived_at),
            epoch=epoch,
            num_tokens=len(request.tokens),
            shape=service.shape,
            memory=service.memory,
            deadline_s=self._settings.transfer_deadline_s + 2 * ahead_s,
        )
        service.queue.pinned.add(request)
        return self._start(request.decode_engine, reserve, request, service, now)

    def migrate(
        self, service: Service, request: Request, to: str, now: float, min_freeness: float | None = None
    ) -> list[Effect]:
        """Move a request that decodes, and goes on with it. It may be preempted until it stops for the last stage.

        The other engine declines if that would leave it less than ``min_freeness``.
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
            memory=service.memory,
            deadline_s=self._settings.transfer_deadline_s + 2 * block_size * service.decode_step_s(),
            is_migration=True,
            min_freeness=min_freeness,
        )
        effects = self._start(to, reserve, request, service, now)
        return effects + self.blocks_ready(request, now)

    def _start(self, to: str, reserve: Reserve, request: Request, service: Service, now: float) -> list[Effect]:
        machine = SendTransfer(to, reserve, self._settings.transfer_limits, now)
        request.transfer = reserve.transfer
        out = Outgoing(machine, request, service, reserve.epoch, reserve.is_migration)
        self._outgoing[reserve.transfer] = out
        return self._after_send(out, machine.start(), now)

    def may_commit(self, request: Request) -> bool:
        """Whether a request may stop here: after its prefill at once, a migrating one when little of it is left."""
        out = self._outgoing.get(request.transfer or "")
        return out is not None and (not out.is_migration or out.machine.is_nearly_done)

    def blocks_ready(self, request: Request, now: float) -> list[Effect]:
        """More of a request's tokens are computed."""
        out = self._outgoing.get(request.transfer or "")
        if out is None:
            return []
        event = BlocksReady(request.num_computed, tuple(request.blocks))
        return self._after_send(out, out.machine.handle(event, now), now)

    def commit(self, request: Request, now: float) -> list[Effect]:
        """Let the request go: its first token is drawn, or what is left of it to migrate is little."""
        out = self._outgoing.get(request.transfer or "")
        if out is None:
            return []
        out.committed = True
        out.service.queue.pinned.add(request)
        first = request.first_token_at
        event = CommitRequested(
            request.generated,
            request.num_computed,
            tuple(request.blocks),
            now - request.arrived_at,
            None if first is None else now - first,
        )
        return self._after_send(out, out.machine.handle(event, now), now)

    def exported(self, transfer: str, event: Exported, now: float) -> list[Effect]:
        out = self._outgoing.get(transfer)
        return [] if out is None else self._after_send(out, out.machine.handle(event, now), now)

    def cancel_outgoing(self, transfer: str, reason: str, now: float) -> list[Effect]:
        out = self._outgoing.get(transfer)
        if out is None:
            return []
        was_under_way, num_aborted = _is_under_way(out.machine), self.tally.num_aborted
        effects = self._after_send(out, out.machine.handle(Cancelled(reason), now), now)
        if out.is_migration and was_under_way and self.tally.num_aborted == num_aborted:
            self.tally.aborted(out.request.id, out.machine.peer, reason)
        return effects

    def _after_send(self, out: Outgoing, effects: Sequence[SendEffect], now: float) -> list[Effect]:
        passed: list[Effect] = []
        for effect in effects:
            match effect:
                case Completed(_, num_kept_tokens) if out.is_migration:
                    self.tally.completed(out.request.id, out.machine.peer, num_kept_tokens)
                    self._owner.migrated(out.request, out.machine.peer, out.epoch, now)
                case Completed():
                    self._owner.handed_over(out.request, now)
                case Failed(_, _, reason) if out.is_migration:
                    self._not_migrated(out, reason, now)
                case Failed(_, code, reason):
                    self._owner.not_handed_over(out.request, code, reason, now)
                case ReleaseSource():
                    out.service.queue.pinned.discard(out.request)
                    self._owner.unpinned(out.request)
                case _:
                    passed.append(effect)
        if out.machine.is_over:
            self._outgoing.pop(out.machine.id, None)
        return passed

    def _not_migrated(self, out: Outgoing, reason: str, now: float) -> None:
        request, to = out.request, out.machine.peer
        self.tally.aborted(request.id, to, reason)
        if out.machine.has_sent_commit:
            self._owner.not_handed_over(request, RefusalCode.UNKNOWN_OWNER, reason, now)
        else:
            request.transfer = None
            self._owner.not_migrated(request, to, now)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: TransferMessage, payload: Sequence[Buffer], now: float) -> list[Effect]:
        """Route a message to its machine; answer what belongs to none, so that the peer need not wait."""
        out = self._outgoing.get(message.transfer)
        if (
            out is not None
            and out.machine.peer == sender
            and not isinstance(message, Reserve | Extend | Blocks | Commit)
        ):
            was_reserving = out.machine.state is SendState.RESERVING
            effects = self._after_send(out, out.machine.handle(message, now), now)
            is_admitted = was_reserving and out.machine.state is SendState.OPEN
            if is_admitted and not out.is_migration and not out.request.is_over:
                out.service.queue.waiting.append(out.request)
            return effects
        incoming = self._incoming.get(message.transfer)
        if (
            incoming is not None
            and incoming.machine.peer == sender
            and isinstance(message, Reserve | Extend | Blocks | Commit | Abort)
        ):
            return self._after_receive(incoming, incoming.machine.handle(message, now, payload), now)
        if isinstance(message, Reserve):
            return self._open(sender, message, now)
        answer = reply_to_unknown(message)
        return [] if answer is None else [Send(sender, answer)]

    def _open(self, sender: str, reserve: Reserve, now: float) -> list[Effect]:
        service = self._services.get(reserve.spec.service)
        if service is None:
            return self.decline(sender, reserve, RefusalCode.UNKNOWN_SERVICE, f"{reserve.spec.service!r} is not here")
        if service.shape != reserve.shape:
            return self.decline(sender, reserve, RefusalCode.UNKNOWN_SERVICE, "KV blocks have another shape here")
        coming = sum(incoming.service is service for incoming in self._incoming.values())
        if len(service.queue.running) + coming >= self._settings.limits.max_running:
            return self.decline(sender, reserve, RefusalCode.FULL, f"{self._settings.limits.max_running} requests run")
        if reserve.min_freeness is not None:
            free = with_one_more(
                self._owner.freeness(service, now), len(service.queue.running) + coming, reserve.num_tokens
            )
            if free < reserve.min_freeness:
                return self.decline(sender, reserve, RefusalCode.FULL, f"freeness would be {free:.0f} there")
        try:
            transport = choose(
                self._settings.transport, reserve.memory, self._settings.host, lambda ref: self._can_open(sender, ref)
            )
        except TransportError as error:
            return self.decline(sender, reserve, RefusalCode.TRANSFER_FAILED, str(error))
        return self._hold(sender, reserve, service, transport, now)

    def _hold(self, sender: str, reserve: Reserve, service: Service, transport: str, now: float) -> list[Effect]:
        pool, spec = service.pool, reserve.spec
        blocks = pool.match([*spec.prompt, *spec.generated], reserve.num_tokens)
        num_matched = len(blocks) * pool.block_size
        missing = pool.blocks_for(reserve.num_tokens) - len(blocks)
        if not pool.can_allocate(missing + len(service.queue.running)):
            pool.release(blocks)
            return self.decline(sender, reserve, RefusalCode.NO_MEMORY, f"{pool.num_free} blocks are free")
        blocks += pool.allocate(missing)
        machine = ReceiveTransfer(
            sender,
            reserve,
            blocks=blocks,
            num_matched_tokens=num_matched,
            transport=transport,
            limits=self._settings.transfer_limits,
            now=now,
        )
        incoming = self._incoming[reserve.transfer] = Incoming(machine, reserve, service)
        return self._after_receive(incoming, machine.start(), now)

    @staticmethod
    def decline(sender: str, reserve: Reserve, code: RefusalCode, reason: str) -> list[Effect]:
        return [Send(sender, Declined(reserve.transfer, code, reason))]

    def imported(self, transfer: str, event: Imported, now: float) -> list[Effect]:
        incoming = self._incoming.get(transfer)
        return [] if incoming is None else self._after_receive(incoming, incoming.machine.handle(event, now), now)

    def cancel_incoming(self, request: str, epoch: Epoch, now: float) -> list[Effect]:
        """Forget what is reserved for a request under that epoch or an earlier one."""
        effects: list[Effect] = []
        for incoming in list(self._incoming.values()):
            if incoming.reserve.spec.id == request and incoming.reserve.epoch <= epoch:
                effects += self._after_receive(incoming, incoming.machine.handle(Cancelled("cancelled"), now), now)
        return effects

    def reclaim(self, service: Service, now: float) -> list[Effect]:
        """What runs here needs the memory that is reserved for migrations: they may as well stay where they are."""
        effects: list[Effect] = []
        for incoming in list(self._incoming.values()):
            if incoming.service is service and incoming.reserve.is_migration:
                event = Cancelled("memory is needed for what runs there")
                effects += self._after_receive(incoming, incoming.machine.handle(event, now), now)
        return effects

    def _after_receive(self, incoming: Incoming, effects: Sequence[ReceiveEffect], now: float) -> list[Effect]:
        passed: list[Effect] = []
        for effect in effects:
            match effect:
                case Adopt():
                    self._owner.adopt(incoming.service, _adopted(incoming.service, effect, now), now)
                case GrowReserved(_, num_blocks):
                    passed += self._grow(incoming, num_blocks, now)
                case ReleaseReserved():
                    incoming.service.pool.release(effect.blocks)
                case _:
                    passed.append(effect)
        if incoming.machine.is_over:
            self._incoming.pop(incoming.machine.id, None)
        return passed

    def _grow(self, incoming: Incoming, num_blocks: int, now: float) -> list[Effect]:
        pool, num_running = incoming.service.pool, len(incoming.service.queue.running)
        event: Grown | NotGrown = NotGrown(f"{num_blocks} more blocks were wanted, {pool.num_free} are free")
        if pool.can_allocate(num_blocks + num_running):
            event = Grown(pool.allocate(num_blocks))
        return self._after_receive(incoming, incoming.machine.handle(event, now), now)

    # --- both ---------------------------------------------------------------------------------------------------------

    def lose_peer(self, process: str, now: float) -> list[Effect]:
        """An engine died, or a gateway whose requests were on their way here."""
        effects: list[Effect] = []
        for out in [out for out in self._outgoing.values() if out.machine.peer == process]:
            effects += self._after_send(out, out.machine.handle(PeerLost(), now), now)
        for incoming in list(self._incoming.values()):
            if incoming.machine.peer == process:
                effects += self._after_receive(incoming, incoming.machine.handle(PeerLost(), now), now)
            elif incoming.reserve.spec.gateway == process:
                effects += self._after_receive(incoming, incoming.machine.handle(Cancelled("gateway lost"), now), now)
        return effects

    def expire(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for out in list(self._outgoing.values()):
            effects += self._after_send(out, out.machine.expire(now), now)
        for incoming in list(self._incoming.values()):
            effects += self._after_receive(incoming, incoming.machine.expire(now), now)
        return effects

    def next_deadline(self) -> float | None:
        return min_or_none(transfer.machine.next_deadline() for transfer in self._all())

    def check_invariants(self) -> None:
        for transfer in self._all():
            transfer.machine.check_invariants()

    def _all(self) -> list[Transfer]:
        return [*self._outgoing.values(), *self._incoming.values()]


def _is_under_way(machine: SendTransfer) -> bool:
    return not machine.is_over and machine.state is not SendState.LINGERING


def _adopted(service: Service, effect: Adopt, now: float) -> Request:
    """The request as it goes on here. Its first delta repeats what the sender may not have delivered.

    With log-probabilities nothing is repeated, because those of earlier tokens are not known here; should the sender's
    delta be lost, the gateway sees the gap and dispatches anew.
    """
    spec = effect.spec
    known = len(spec.generated) if spec.sampling.logprobs is None else len(effect.generated)
    spec = msgspec.structs.replace(
        spec, generated=effect.generated, age_s=effect.age_s, first_token_age_s=effect.first_token_age_s
    )
    request = Request.of(spec, effect.epoch, now, service.eos_token_ids, service.context_limit)
    request.num_delivered = known
    request.blocks = list(effect.blocks)
    request.num_computed = min(effect.num_kept_tokens, len(request.tokens) - 1)
    return request
