"""An engine's transfers in both directions (concepts/migration.md): who a message is for, and what concerns both."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count

from engines.adapters.room import AdapterRoom
from engines.pulls.pulls import Pulls
from engines.pulls.sources import PrefixSources
from engines.scheduling.service import Service, min_or_none
from engines.settings import EngineSettings
from engines.transfers.incoming import IncomingTransfers
from engines.transfers.outcomes import EngineOutcome
from engines.transfers.outgoing import Departures
from kvtransfer.protocol import Buffer, Exported, Imported, Send, ToReceiver, ToSender, reply_to_unknown
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.send import SendTransfer
from mesh.wire.messages import TransferMessage
from mesh.wire.transfers import Abort, Blocks, Commit, Declined, Extend, MemoryRef, Pull, Reserve

FROM_SOURCE = Reserve, Extend, Blocks, Commit
TO_RECEIVER = Reserve, Extend, Blocks, Commit, Abort
OfTransfer = ToSender | ToReceiver
TO_PULL = Extend, Blocks, Commit, Declined, Abort


class Handovers:
    """All transfers of one engine. ``can_open`` tells whether a peer's pool (process, reference) can be mapped here,
    ``freeness`` how free a service is. ``tickets``: numbers of loads from KV tiers.
    """

    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        can_open: Callable[[str, MemoryRef], bool],
        freeness: Callable[[Service, float], float],
        adapters: AdapterRoom,
    ) -> None:
        self.departures = Departures(settings)
        self.arrivals = IncomingTransfers(settings, services, can_open, freeness, adapters)
        self.tickets = count(1)
        self.pulls = Pulls(settings, can_open)
        self.sources = PrefixSources(settings, services, self.tickets)

    def __repr__(self) -> str:
        return f"<Handovers {self._machines()}>"

    @property
    def is_idle(self) -> bool:
        return self.departures.is_idle and not len(self.arrivals) and self.pulls.is_idle and self.sources.is_idle

    def concern(self, service: str) -> bool:
        """Return whether any transfer of that service is under way, in or out."""
        of_requests = self.departures.concern(service) or self.arrivals.concern(service)
        return of_requests or self.pulls.concern(service) or self.sources.concern(service)

    def receive(
        self, sender: str, message: TransferMessage, payload: Sequence[Buffer], now: float
    ) -> list[EngineOutcome]:
        """Route a message to its machine; answer what belongs to none, so that the peer need not wait."""
        if isinstance(message, Pull):
            return self.sources.serve(sender, message, now)
        if not isinstance(message, FROM_SOURCE) and self.departures.owns(message.transfer, sender):
            return self.departures.answered(message, now)
        if isinstance(message, TO_RECEIVER) and self.arrivals.owns(message.transfer, sender):
            return self.arrivals.told(message, payload, now)
        if isinstance(message, Reserve) and not message.is_pull:
            return self.arrivals.open(sender, message, now)
        return self._receive_of_pull(sender, message, payload, now)

    def _receive_of_pull(
        self, sender: str, message: OfTransfer, payload: Sequence[Buffer], now: float
    ) -> list[EngineOutcome]:
        if isinstance(message, Reserve):
            return self.pulls.open(sender, message, now)
        if isinstance(message, TO_PULL) and self.pulls.owns(message.transfer, sender):
            return self.pulls.told(message, payload, now)
        if not isinstance(message, FROM_SOURCE) and self.sources.owns(message.transfer, sender):
            return self.sources.answered(message, now)
        answer = reply_to_unknown(message)
        return [] if answer is None else [Send(sender, answer)]

    def lose_peer(self, process: str, now: float) -> list[EngineOutcome]:
        return list(chain.from_iterable(way.lose_peer(process, now) for way in self._ways))

    def exported(self, transfer: str, event: Exported, now: float) -> list[EngineOutcome]:
        """Blocks are ready to leave."""
        outcomes = self.departures.exported(transfer, event, now)
        return outcomes if self.sources.is_idle else outcomes + self.sources.exported(transfer, event, now)

    def imported(self, transfer: str, event: Imported, now: float) -> list[EngineOutcome]:
        """Blocks are copied, or could not be."""
        outcomes = self.arrivals.imported(transfer, event, now)
        return outcomes if self.pulls.is_idle else outcomes + self.pulls.imported(transfer, event, now)

    def expire(self, now: float) -> list[EngineOutcome]:
        return list(chain.from_iterable(way.expire(now) for way in self._ways))

    def next_deadline(self) -> float | None:
        outgoing, incoming = self.departures.next_deadline(), self.arrivals.next_deadline()
        if not (self.pulls.is_idle and self.sources.is_idle):
            return min_or_none([outgoing, incoming, self.pulls.next_deadline(), self.sources.next_deadline()])
        if outgoing is None or incoming is None:
            return incoming if outgoing is None else outgoing
        return min(outgoing, incoming)

    @property
    def _ways(self) -> tuple[Departures, IncomingTransfers, Pulls, PrefixSources]:
        return self.departures, self.arrivals, self.pulls, self.sources

    def check_invariants(self) -> None:
        for machine in self._machines():
            machine.check_invariants()

    def _machines(self) -> list[SendTransfer | ReceiveTransfer]:
        return list(chain.from_iterable(way.machines() for way in self._ways))
