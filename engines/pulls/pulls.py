"""Pulls of one engine: it asks a peer for the blocks of a prefix, and the peer sends them as it hands requests over.

The peer answers with a `Reserve` that says ``is_pull``, and `kvtransfer.receive` takes the blocks. They go to blocks
that the request holds, and that are held here as well: so what is being copied is not reused, whatever becomes of the
request. A pull that fails has brought the blocks that came before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engines.engine_request import EngineRequest
from engines.memory.block_digests import Digest
from engines.pulls.cost import PullCost
from engines.scheduling.service import Service, min_or_none
from engines.settings import EngineSettings
from engines.transfers.outcomes import EngineOutcome, Pulled
from kvtransfer.layout import block_bytes
from kvtransfer.protocol import Buffer, Cancelled, ImportBlocks, Imported, PeerLost, ReceiveEffect, Send
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.tiers.tier import TierUse
from kvtransfer.transport_choice import TransportError, choose
from mesh.wire.requests import RefusalCode
from mesh.wire.transfers import Abort, Blocks, Commit, Declined, Extend, MemoryRef, Pull, Reserve

MOST_PULLS = 4  # at a time
MOST_BYTES = 16 * 2**30  # of all pulls at a time

FromSource = Extend | Blocks | Commit | Declined | Abort


@dataclass(slots=True)
class _Running:
    """``blocks``: where the prefix's are to be, held for the pull. ``machine`` None: the peer has not answered, else it
    has ``num_promised`` of them.
    """

    id: str
    peer: str
    service: Service
    blocks: Sequence[int]
    num_bytes: int
    bytes_ahead: int
    asked_at: float
    num_promised: int
    machine: ReceiveTransfer | None = field(default=None)


class Pulls:
    """Every pull that was started ends with one `Pulled`. ``can_open`` tells whether a peer's pool (process, reference)
    can be mapped here.
    """

    def __init__(self, settings: EngineSettings, can_open: Callable[[str, MemoryRef], bool]) -> None:
        self._settings = settings
        self._can_open = can_open
        self._running: dict[str, _Running] = {}
        self._avoided: dict[str, float] = {}  # peers that were silent or refused, until when
        self._num_started = 0
        self.cost = PullCost()
        self.use = TierUse()  # what pulls brought; faults: pulls that brought less than was promised

    def __repr__(self) -> str:
        return f"<Pulls {list(self._running)}>"

    @property
    def is_idle(self) -> bool:
        return not self._running

    @property
    def _bytes_running(self) -> int:
        return sum([pull.num_bytes for pull in self._running.values()])

    def machines(self) -> list[ReceiveTransfer]:
        return [pull.machine for pull in self._running.values() if pull.machine is not None]

    def concern(self, service: str) -> bool:
        return any(pull.service.name == service for pull in self._running.values())

    def predict_s(self, service: Service, peer: str, num_blocks: int, now: float) -> float | None:
        """Return how long so many blocks will take to come; None: they are not to be asked for now."""
        num_bytes, running = num_blocks * block_bytes(service.shape), self._bytes_running
        if not self._settings.pulls or peer == self._settings.id or now < self._avoided.get(peer, now):
            return None
        if len(self._running) >= MOST_PULLS or running + num_bytes > MOST_BYTES:
            return None
        return self.cost.seconds(num_bytes, running, now)

    def told_cost(self, service: Service, now: float) -> tuple[float, float]:
        """Return what gateways may know: seconds until a pull begins, and for each token. Zeros: none is made."""
        if not self._settings.pulls:
            return 0.0, 0.0
        byte_s, num_bytes = self.cost.byte_s(now), block_bytes(service.shape)
        return self.cost.seconds(0, self._bytes_running, now), byte_s * num_bytes / service.pool.block_size

    def start(
        self,
        service: Service,
        request: EngineRequest,
        peer: str,
        digests: list[Digest],
        blocks: Sequence[int],
        now: float,
    ) -> tuple[str, list[EngineOutcome]]:
        """Ask ``peer`` for the blocks of these digests, which are to be at ``blocks``. Return the pull's id, too."""
        self._num_started += 1
        id_ = f"{request.id}.{request.epoch.attempt}.{request.epoch.hop}.pull{self._num_started}"
        num_bytes = len(blocks) * block_bytes(service.shape)
        service.pool.hold(blocks)
        self._running[id_] = _Running(id_, peer, service, blocks, num_bytes, self._bytes_running, now, len(blocks))
        spec = request.spec
        pull = Pull(id_, spec.id, spec.gateway, service.name, service.identity, service.shape, digests)
        return id_, [Send(peer, pull)]

    # --- what happens -------------------------------------------------------------------------------------------------

    def open(self, sender: str, reserve: Reserve, now: float) -> list[EngineOutcome]:
        """The peer has blocks."""
        pull = self._running.get(reserve.transfer)
        if pull is None or pull.peer != sender:
            return _declined(sender, reserve, "nobody waits for it here")
        if pull.machine is not None:
            return self._after(pull, pull.machine.handle(reserve, now), now)
        service, num_blocks = pull.service, reserve.num_tokens // reserve.shape.block_size
        if reserve.shape != service.shape or not 0 < num_blocks <= len(pull.blocks):
            return [*_declined(sender, reserve, "it is not what was asked for"), *self._end(pull, 0, now)]
        try:
            transport = choose(
                self._settings.transport,
                reserve.memory,
                self._settings.host,
                lambda ref: self._can_open(sender, ref),
                service.memory,
            )
        except TransportError as error:
            return [*_declined(sender, reserve, str(error)), *self._end(pull, 0, now)]
        pull.num_promised = num_blocks
        pull.machine = ReceiveTransfer(
            sender,
            reserve,
            blocks=pull.blocks[:num_blocks],
            num_matched_tokens=0,
            transport=transport,
            limits=self._settings.transfer_limits,
            now=now,
        )
        return self._after(pull, pull.machine.start(), now)

    def owns(self, transfer: str, peer: str) -> bool:
        pull = self._running.get(transfer)
        return pull is not None and pull.peer == peer

    def told(self, message: FromSource, payload: Sequence[Buffer], now: float) -> list[EngineOutcome]:
        """The peer of a pull said something."""
        pull = self._running[message.transfer]
        if isinstance(message, Declined) or pull.machine is None:
            return self._end(pull, 0, now)
        return self._after(pull, pull.machine.handle(message, now, payload), now)

    def imported(self, transfer: str, event: Imported, now: float) -> list[EngineOutcome]:
        pull = self._running.get(transfer)
        if pull is None or pull.machine is None:
            return []
        return self._after(pull, pull.machine.handle(event, now), now)

    def cancel(self, transfer: str, reason: str, now: float) -> list[EngineOutcome]:
        """End a pull. `Pulled` follows at once, unless blocks are being copied."""
        pull = self._running.get(transfer)
        if pull is None:
            return []
        if pull.machine is None:
            return [Send(pull.peer, Abort(pull.id, reason)), *self._end(pull, 0, now)]
        return self._after(pull, pull.machine.handle(Cancelled(reason), now), now)

    def lose_peer(self, process: str, now: float) -> list[EngineOutcome]:
        """A process died, or is not heard any more."""
        outcomes: list[EngineOutcome] = []
        for pull in [pull for pull in self._running.values() if pull.peer == process]:
            if pull.machine is None:
                outcomes += self._end(pull, 0, now)
            else:
                outcomes += self._after(pull, pull.machine.handle(PeerLost(), now), now)
        return outcomes

    def next_deadline(self) -> float | None:
        return min_or_none([self._due_at(pull) for pull in self._running.values()]) if self._running else None

    def _due_at(self, pull: _Running) -> float | None:
        if pull.machine is None:
            return pull.asked_at + self._settings.transfer_limits.reply_s
        return pull.machine.next_deadline()

    def expire(self, now: float) -> list[EngineOutcome]:
        outcomes: list[EngineOutcome] = []
        for pull in [*self._running.values()]:
            if pull.machine is not None:
                outcomes += self._after(pull, pull.machine.expire(now), now)
            elif now >= pull.asked_at + self._settings.transfer_limits.reply_s:
                outcomes += self.cancel(pull.id, "no answer in time", now)
        return outcomes

    # --- how they end -------------------------------------------------------------------------------------------------

    def _after(self, pull: _Running, effects: Sequence[ReceiveEffect], now: float) -> list[EngineOutcome]:
        """What is adopted or released is the request's business: see `_end`."""
        machine = pull.machine
        assert machine is not None, "only a pull that was answered has effects"
        passed: list[EngineOutcome] = [effect for effect in effects if isinstance(effect, PASSED)]
        if machine.is_over:
            passed += self._end(pull, machine.num_kept_tokens // pull.service.pool.block_size, now)
        return passed

    def _end(self, pull: _Running, num_blocks: int, now: float) -> list[EngineOutcome]:
        del self._running[pull.id]
        pull.service.pool.release(pull.blocks)
        num_bytes, elapsed_s = num_blocks * block_bytes(pull.service.shape), now - pull.asked_at
        if num_blocks < pull.num_promised:
            if pull.machine is not None:  # else the peer said nothing, which says nothing of the link
                self.cost.learn_at_least(pull.num_bytes, pull.bytes_ahead, elapsed_s, now)
            self.use.num_faults += 1
            self._avoid(pull.peer, now)
        else:
            self.cost.learn(num_bytes, pull.bytes_ahead, elapsed_s, now)
        self.use.num_blocks += num_blocks
        self.use.num_bytes += num_bytes
        self.use.elapsed_s += elapsed_s
        return [Pulled(pull.id, num_blocks)]

    def _avoid(self, peer: str, now: float) -> None:
        """Do not ask it for a moment."""
        self._avoided = {one: until for one, until in self._avoided.items() if until > now}
        self._avoided[peer] = now + self._settings.transfer_limits.reply_s


PASSED = Send | ImportBlocks


def _declined(to: str, reserve: Reserve, reason: str) -> list[EngineOutcome]:
    return [Send(to, Declined(reserve.transfer, RefusalCode.TRANSFER_FAILED, reason))]
