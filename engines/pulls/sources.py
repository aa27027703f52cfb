"""Prefixes that other engines pull from this one: out of its pool, and out of the tiers of its host.

What the pool has leaves at once. What only tiers have is loaded into blocks that are free, leaves from there, and is
gone again: it takes no place from what this engine computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engines.effects import LoadBlocks, StopLoading
from engines.scheduling.service import Service, min_or_none
from engines.settings import EngineSettings
from engines.transfers.outcomes import EngineOutcome
from kvtransfer.protocol import (
    BlocksReady,
    CommitRequested,
    ExportBlocks,
    Exported,
    PeerLost,
    ReleaseSource,
    Send,
    SendEffect,
)
from kvtransfer.send import SendTransfer
from kvtransfer.tiers.tier import BlocksLoaded
from mesh.wire.requests import Epoch, RefusalCode, RequestSpec, Sampling
from mesh.wire.transfers import Abort, Committed, Declined, Extended, Pull, Reserve, Reserved, Taken

MOST_SOURCES = 4  # transfers at a time

ToSource = Reserved | Extended | Declined | Taken | Committed | Abort


@dataclass(slots=True)
class _Source:
    """``table``: blocks that are held for it, of which the first ``num_ready`` are full. ``ticket``: of the load of the
    others, while it runs.
    """

    machine: SendTransfer
    service: Service
    table: Sequence[int]
    num_ready: int
    ticket: int | None = None


class PrefixSources:
    """``tickets``: numbers of loads from tiers, which nobody else has."""

    def __init__(self, settings: EngineSettings, services: Mapping[str, Service], tickets: Iterator[int]) -> None:
        self._settings = settings
        self._services = services
        self._tickets = tickets
        self._sources: dict[str, _Source] = {}

    def __repr__(self) -> str:
        return f"<PrefixSources {list(self._sources)}>"

    @property
    def is_idle(self) -> bool:
        return not self._sources

    def machines(self) -> list[SendTransfer]:
        return [source.machine for source in self._sources.values()]

    def concern(self, service: str) -> bool:
        return any(source.service.name == service for source in self._sources.values())

    def serve(self, sender: str, pull: Pull, now: float) -> list[EngineOutcome]:
        """Send what is here of the first blocks that are asked for, or decline. What is asked again is under way."""
        if pull.transfer in self._sources:
            return []
        service = self._services.get(pull.service)
        if service is None or service.is_leaving or service.tiers is None:
            return _declined(sender, pull, RefusalCode.UNKNOWN_SERVICE, f"{pull.service!r} is not to be had here")
        if service.identity != pull.model or service.shape != pull.shape:
            return _declined(sender, pull, RefusalCode.UNKNOWN_SERVICE, f"{pull.service!r} is another model here")
        if len(self._sources) >= MOST_SOURCES:
            return _declined(sender, pull, RefusalCode.FULL, f"{MOST_SOURCES} prefixes leave at a time")
        service.pool.tell_new()  # from now on, blocks are found by their digests
        table = service.pool.take(pull.digests)
        num_ready, num_stored = len(table), self._num_stored(service, pull, len(table))
        if not num_ready + num_stored:
            return _declined(sender, pull, RefusalCode.TRANSFER_FAILED, "nothing of it is here")
        table += service.pool.allocate(num_stored)
        return self._start(sender, pull, _stored(pull, num_ready, num_stored), service, table, now)

    def _num_stored(self, service: Service, pull: Pull, first: int) -> int:
        """How many blocks tiers have from the one with index ``first`` on; none if there is no room to load them."""
        assert service.tiers is not None
        number = first
        while number < len(pull.digests) and service.tiers.find(pull.digests[number]) is not None:
            number += 1
        headroom = service.queue.growth_blocks + service.growth_elsewhere(self._services.values())
        return number - first if service.queue.can_have(number - first + headroom) else 0

    def _start(
        self, sender: str, pull: Pull, stored: Sequence[bytes], service: Service, table: list[int], now: float
    ) -> list[EngineOutcome]:
        num_ready, size = len(table) - len(stored), service.pool.block_size
        reserve = Reserve(
            transfer=pull.transfer,
            spec=RequestSpec(pull.request, pull.gateway, pull.service, [], Sampling(0, 0), 0.0, 0.0),
            epoch=Epoch(0),
            num_tokens=len(table) * size,
            shape=service.shape,
            memory=service.memory,
            deadline_s=self._settings.transfer_deadline_s,
            model=service.identity,
            is_pull=True,
        )
        machine = SendTransfer(sender, reserve, self._settings.transfer_limits, now)
        source = self._sources[pull.transfer] = _Source(machine, service, table, num_ready)
        outcomes = self._after(source, machine.start())
        if not stored:
            return outcomes + self._finish(source, now)
        source.ticket = next(self._tickets)
        outcomes += self._after(source, machine.handle(BlocksReady(num_ready * size, tuple(table[:num_ready])), now))
        return [*outcomes, LoadBlocks(source.ticket, service.name, stored, table[num_ready:])]

    def _finish(self, source: _Source, now: float) -> list[EngineOutcome]:
        """All that there is is ready."""
        num_tokens, table = source.num_ready * source.service.pool.block_size, tuple(source.table[: source.num_ready])
        return self._after(source, source.machine.handle(CommitRequested([], num_tokens, table, 0.0, None), now))

    def loaded(self, ticket: int, result: BlocksLoaded, now: float) -> list[EngineOutcome]:
        """Note that a load from tiers has ended, if it was one for these."""
        source = next((one for one in self._sources.values() if one.ticket == ticket), None)
        if source is None:
            return []
        source.ticket = None
        source.num_ready += result.num_blocks
        return self._finish(source, now)

    def owns(self, transfer: str, peer: str) -> bool:
        source = self._sources.get(transfer)
        return source is not None and source.machine.peer == peer

    def answered(self, message: ToSource, now: float) -> list[EngineOutcome]:
        """The engine that pulls said something."""
        source = self._sources[message.transfer]
        return self._after(source, source.machine.handle(message, now))

    def exported(self, transfer: str, event: Exported, now: float) -> list[EngineOutcome]:
        source = self._sources.get(transfer)
        return [] if source is None else self._after(source, source.machine.handle(event, now))

    def lose_peer(self, process: str, now: float) -> list[EngineOutcome]:
        outcomes: list[EngineOutcome] = []
        for source in [one for one in self._sources.values() if one.machine.peer == process]:
            outcomes += self._after(source, source.machine.handle(PeerLost(), now))
        return outcomes

    def next_deadline(self) -> float | None:
        return min_or_none([one.machine.next_deadline() for one in self._sources.values()]) if self._sources else None

    def expire(self, now: float) -> list[EngineOutcome]:
        outcomes: list[EngineOutcome] = []
        for source in [*self._sources.values()]:
            outcomes += self._after(source, source.machine.expire(now))
        return outcomes

    def _after(self, source: _Source, effects: Sequence[SendEffect]) -> list[EngineOutcome]:
        passed: list[EngineOutcome] = []
        for effect in effects:
            match effect:
                case ReleaseSource():
                    if source.ticket is not None:
                        passed.append(StopLoading(source.ticket, source.service.name))
                    source.service.pool.release(source.table)
                case Send() | ExportBlocks():
                    passed.append(effect)
        if source.machine.is_over:
            self._sources.pop(source.machine.id, None)
        return passed


def _stored(pull: Pull, first: int, num_blocks: int) -> Sequence[bytes]:
    return pull.digests[first : first + num_blocks]


def _declined(to: str, pull: Pull, code: RefusalCode, reason: str) -> list[EngineOutcome]:
    return [Send(to, Declined(pull.transfer, code, reason))]
