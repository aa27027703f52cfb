"""An engine's incoming transfers: blocks that are held for requests which other engines hand over or migrate here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from engines.adapters.room import AdapterRoom
from engines.admission.validity import fault_of
from engines.engine_request import EngineRequest
from engines.scheduling.service import Service, min_or_none
from engines.settings import EngineSettings
from engines.transfers.freeness import with_one_more
from engines.transfers.outcomes import Arrived, EngineOutcome
from kvtransfer.protocol import (
    Adopt,
    Buffer,
    Cancelled,
    Grown,
    GrowReserved,
    Imported,
    NotGrown,
    PeerLost,
    ReceiveEffect,
    ReleaseReserved,
    Send,
)
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.transport_choice import TransportError, choose
from mesh.wire.requests import Epoch, RefusalCode
from mesh.wire.transfers import Abort, Blocks, Commit, Declined, Extend, MemoryRef, Reserve

MOST_ADOPTED = 64  # transfers that are remembered after their end


@dataclass(frozen=True, slots=True)
class Incoming:
    machine: ReceiveTransfer
    service: Service

    @property
    def reserve(self) -> Reserve:
        return self.machine.reserve


class IncomingTransfers:
    """Transfers to this engine. ``can_open`` tells whether a peer's pool (process, reference) can be mapped here,
    ``freeness`` how free a service is. ``adapters``: those that are here.

    Answers events with effects and with requests that have come (`engines.transfers.outcomes`).
    """

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        can_open: Callable[[str, MemoryRef], bool],
        freeness: Callable[[Service, float], float],
        adapters: AdapterRoom,
    ) -> None:
        self._settings = settings
        self._services = services
        self._can_open = can_open
        self._freeness = freeness
        self._adapters = adapters
        self._incoming: dict[str, Incoming] = {}
        self._adopted: dict[str, Incoming] = {}  # the last ones, oldest first: their peers may not have heard of it
        self._deadline: float | None = None  # the machines' earliest
        self._has_changed = False  # since that was worked out

    def __len__(self) -> int:
        return len(self._incoming)

    @property
    def num_migrating(self) -> int:
        return sum([incoming.reserve.is_migration for incoming in self._incoming.values()]) if self._incoming else 0

    def machines(self) -> list[ReceiveTransfer]:
        return [incoming.machine for incoming in self._incoming.values()]

    def next_deadline(self) -> float | None:
        """Return the next deadline of these transfers. It is asked for after every event, and few events touch any."""
        if self._has_changed:
            self._deadline = min_or_none([incoming.machine.next_deadline() for incoming in self._incoming.values()])
            self._has_changed = False
        return self._deadline

    def expects(self, request: str, attempt: int) -> bool:
        """Return whether blocks are kept here for a request that another engine hands over."""
        reserves = (incoming.reserve for incoming in self._incoming.values())
        return any(reserve.spec.id == request and reserve.epoch.attempt == attempt for reserve in reserves)

    def concern(self, service: str) -> bool:
        return any(incoming.service.name == service for incoming in self._incoming.values())

    def owns(self, transfer: str, peer: str) -> bool:
        incoming = self._incoming.get(transfer) or self._adopted.get(transfer)
        return incoming is not None and incoming.machine.peer == peer

    def told(
        self, message: Reserve | Extend | Blocks | Commit | Abort, payload: Sequence[Buffer], now: float
    ) -> list[EngineOutcome]:
        """The peer of one of these transfers said something."""
        incoming = self._incoming.get(message.transfer) or self._adopted[message.transfer]
        return self._after_receive(incoming, incoming.machine.handle(message, now, payload), now)

    def open(self, sender: str, reserve: Reserve, now: float) -> list[EngineOutcome]:
        """Hold blocks for a request that ``sender`` wants to give, or decline."""
        service = self._services.get(reserve.spec.service)
        if service is None:
            return self.decline(sender, reserve, RefusalCode.UNKNOWN_SERVICE, f"{reserve.spec.service!r} is not here")
        refusal = self._refusal(service, reserve, now)
        if refusal is not None:
            return self.decline(sender, reserve, *refusal)
        try:
            transport = choose(
                self._settings.transport,
                reserve.memory,
                self._settings.host,
                lambda ref: self._can_open(sender, ref),
                service.memory,
            )
        except TransportError as error:
            return self.decline(sender, reserve, RefusalCode.TRANSFER_FAILED, str(error))
        return self._hold(sender, reserve, service, transport, now)

    def _refusal(self, service: Service, reserve: Reserve, now: float) -> tuple[RefusalCode, str] | None:
        """Why a request cannot come, but for memory; None if it can."""
        if service.is_leaving:
            return RefusalCode.DRAINING, f"{service.name!r} is being unloaded"
        missing = _difference(service, reserve) or self._adapters.why_not(reserve.spec, service.adapter_sizes, now)
        if missing is not None:
            return RefusalCode.UNKNOWN_SERVICE, missing
        if (fault := fault_of(reserve.spec, service)) is not None:
            return RefusalCode.TRANSFER_FAILED, fault
        num_coming = sum(incoming.service is service for incoming in self._incoming.values())
        num_running = service.queue.num_taken
        if num_running + num_coming >= self._settings.limits.max_running:
            return RefusalCode.FULL, f"{self._settings.limits.max_running} requests run"
        if reserve.min_freeness is not None:
            free = with_one_more(self._freeness(service, now), num_running, reserve.num_tokens, num_coming)
            if free < reserve.min_freeness:
                return RefusalCode.FULL, f"freeness would be {free:.0f} there"
        return None

    def _hold(self, sender: str, reserve: Reserve, service: Service, transport: str, now: float) -> list[EngineOutcome]:
        pool, spec = service.pool, reserve.spec
        tokens = [*spec.prompt, *spec.generated] if spec.generated else spec.prompt
        blocks = pool.match(tokens, reserve.num_tokens, spec.prefix_salt)
        num_matched = len(blocks) * pool.block_size
        missing = pool.blocks_for(reserve.num_tokens) - len(blocks)
        if not service.queue.can_have(missing + self._headroom(service)):
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
        self._adapters.expect(spec, service.adapter_sizes)
        incoming = self._incoming[reserve.transfer] = Incoming(machine, service)
        return self._after_receive(incoming, machine.start(), now)

    @staticmethod
    def decline(sender: str, reserve: Reserve, code: RefusalCode, reason: str) -> list[EngineOutcome]:
        return [Send(sender, Declined(reserve.transfer, code, reason))]

    def imported(self, transfer: str, event: Imported, now: float) -> list[EngineOutcome]:
        incoming = self._incoming.get(transfer)
        return [] if incoming is None else self._after_receive(incoming, incoming.machine.handle(event, now), now)

    def cancel(self, request: str, epoch: Epoch, now: float) -> list[EngineOutcome]:
        """Forget what is reserved for a request under that epoch or an earlier one."""
        effects: list[EngineOutcome] = []
        for incoming in list(self._incoming.values()):
            if incoming.reserve.spec.id == request and incoming.reserve.epoch <= epoch:
                effects += self._after_receive(incoming, incoming.machine.handle(Cancelled("cancelled"), now), now)
        return effects

    def reclaim(self, now: float) -> list[EngineOutcome]:
        """Cancel migrations to here, whose reserved memory is needed for what runs here. The requests stay where they
        are.
        """
        effects: list[EngineOutcome] = []
        for incoming in list(self._incoming.values()):
            if incoming.reserve.is_migration:
                event = Cancelled("memory is needed for what runs there")
                effects += self._after_receive(incoming, incoming.machine.handle(event, now), now)
        return effects

    def _after_receive(self, incoming: Incoming, effects: Sequence[ReceiveEffect], now: float) -> list[EngineOutcome]:
        self._has_changed = True
        passed: list[EngineOutcome] = []
        for effect in effects:
            match effect:
                case Adopt():
                    passed.append(Arrived(incoming.service, _adopted(incoming.service, effect, now)))
                case GrowReserved(_, num_blocks):
                    passed += self._grow(incoming, num_blocks, now)
                case ReleaseReserved():
                    incoming.service.pool.release(effect.blocks)
                case _:
                    passed.append(effect)
        machine = incoming.machine
        if machine.is_over and self._incoming.pop(machine.id, None) is not None and machine.has_adopted:
            machine.forget_request()
            self._adopted[machine.id] = incoming
            if len(self._adopted) > MOST_ADOPTED:
                del self._adopted[next(iter(self._adopted))]
        return passed

    def _grow(self, incoming: Incoming, num_blocks: int, now: float) -> list[EngineOutcome]:
        pool, headroom = incoming.service.pool, self._headroom(incoming.service)
        event: Grown | NotGrown = NotGrown(f"{num_blocks} more blocks were wanted, {pool.num_free} are free")
        if incoming.service.queue.can_have(num_blocks + headroom):
            event = Grown(pool.allocate(num_blocks))
        return self._after_receive(incoming, incoming.machine.handle(event, now), now)

    def _headroom(self, service: Service) -> int:
        """Blocks left for what runs here to grow into."""
        return service.queue.growth_blocks + service.growth_elsewhere(self._services.values())

    def lose_peer(self, process: str, now: float) -> list[EngineOutcome]:
        """An engine died, or a gateway whose requests were on their way here."""
        effects: list[EngineOutcome] = []
        for incoming in list(self._incoming.values()):
            if incoming.machine.peer == process:
                effects += self._after_receive(incoming, incoming.machine.handle(PeerLost(), now), now)
            elif incoming.reserve.spec.gateway == process:
                effects += self._after_receive(incoming, incoming.machine.handle(Cancelled("gateway lost"), now), now)
        return effects

    def expire(self, now: float) -> list[EngineOutcome]:
        effects: list[EngineOutcome] = []
        for incoming in list(self._incoming.values()):
            effects += self._after_receive(incoming, incoming.machine.expire(now), now)
        return effects


def _difference(service: Service, reserve: Reserve) -> str | None:
    """Between what the sender's KV and tokens are of, and what is here."""
    if service.shape != reserve.shape:
        here, there = ((shape.dtype, shape.form or "plain") for shape in (service.shape, reserve.shape))
        told = [f": {ours}, not {theirs}" for ours, theirs in zip(here, there, strict=True) if ours != theirs]
        return "KV blocks have another shape here" + "".join(told[:1])
    if service.identity != reserve.model:
        return f"{service.name!r} is another model here: its weights or its tokenizer differ"
    return None


def _adopted(service: Service, effect: Adopt, now: float) -> EngineRequest:
    """The request as it goes on here. Its first delta repeats what the sender may not have delivered.

    Not if the prompt's log-probabilities are wanted: they went with the first token, and should that be lost, the
    gateway has to dispatch anew.
    """
    spec = effect.spec
    known = len(spec.generated) if spec.sampling.prompt_logprobs is None else len(effect.generated)
    spec = msgspec.structs.replace(
        spec, generated=effect.generated, age_s=effect.age_s, first_token_age_s=effect.first_token_age_s
    )
    request = EngineRequest.of(spec, effect.epoch, now, service.eos_token_ids, service.context_limit, service.ttft_s)
    request.num_delivered = known
    request.logprobs = list(effect.logprobs or ())
    request.num_cached, request.brought = effect.found
    request.blocks = list(effect.blocks)
    request.num_computed = min(effect.num_kept_tokens, len(request.tokens) - 1)
    return request
