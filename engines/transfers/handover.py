"""An engine's transfers in both directions (concepts/migration.md): who a message is for, and what concerns both."""

from collections.abc import Callable, Mapping, Sequence

from engines.adapters.room import AdapterRoom
from engines.settings import EngineSettings
from engines.status import Service
from engines.transfers.incoming import IncomingTransfers
from engines.transfers.outcomes import EngineOutcome
from engines.transfers.outgoing import Departures
from kvtransfer.protocol import Buffer, Send, reply_to_unknown
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.send import SendTransfer
from mesh.wire.messages import TransferMessage
from mesh.wire.transfers import Abort, Blocks, Commit, Extend, MemoryRef, Reserve

FROM_SOURCE = Reserve, Extend, Blocks, Commit
TO_RECEIVER = Reserve, Extend, Blocks, Commit, Abort


class Handovers:
    """All transfers of one engine. ``can_open`` tells whether a peer's pool (process, reference) can be mapped here,
    ``freeness`` how free a service is.
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

    def __repr__(self) -> str:
        return f"<Handovers {self._machines()}>"

    @property
    def is_idle(self) -> bool:
        return self.departures.is_idle and not len(self.arrivals)

    def concern(self, service: str) -> bool:
        """Return whether any transfer of that service is under way, in or out."""
        return self.departures.concern(service) or self.arrivals.concern(service)

    def receive(
        self, sender: str, message: TransferMessage, payload: Sequence[Buffer], now: float
    ) -> list[EngineOutcome]:
        """Route a message to its machine; answer what belongs to none, so that the peer need not wait."""
        if not isinstance(message, FROM_SOURCE) and self.departures.owns(message.transfer, sender):
            return self.departures.answered(message, now)
        if isinstance(message, TO_RECEIVER) and self.arrivals.owns(message.transfer, sender):
            return self.arrivals.told(message, payload, now)
        if isinstance(message, Reserve):
            return self.arrivals.open(sender, message, now)
        answer = reply_to_unknown(message)
        return [] if answer is None else [Send(sender, answer)]

    def lose_peer(self, process: str, now: float) -> list[EngineOutcome]:
        return self.departures.lose_peer(process, now) + self.arrivals.lose_peer(process, now)

    def expire(self, now: float) -> list[EngineOutcome]:
        return self.departures.expire(now) + self.arrivals.expire(now)

    def next_deadline(self) -> float | None:
        outgoing, incoming = self.departures.next_deadline(), self.arrivals.next_deadline()
        if outgoing is None or incoming is None:
            return incoming if outgoing is None else outgoing
        return min(outgoing, incoming)

    def check_invariants(self) -> None:
        for machine in self._machines():
            machine.check_invariants()

    def _machines(self) -> list[SendTransfer | ReceiveTransfer]:
        return [*self.departures.machines(), *self.arrivals.machines()]
