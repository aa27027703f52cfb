"""The receiving end of a transfer: see `kvtransfer.protocol`."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, NamedTuple

import msgspec

from kvtransfer.machine import Machine, Rule
from kvtransfer.protocol import (
    Adopt,
    Buffer,
    Cancelled,
    DeadlinePassed,
    Grown,
    GrowReserved,
    ImportBlocks,
    Imported,
    NotGrown,
    PeerLost,
    ReceiveEffect,
    ReceiveEvent,
    ReleaseReserved,
    Send,
    TransferLimits,
)
from mesh.wire.requests import RefusalCode
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Declined, Extend, Extended, Reserve, Reserved, Taken

MOST_SEEN = 2**16  # numbers of messages that are remembered; each brings a block at least


class ReceiveState(StrEnum):
    RESERVED = "reserved"
    SETTLING = "settling"  # Commit came, announced blocks are missing or being copied
    COMMITTED = "committed"
    ABORTING = "aborting"  # ended, but a copy into our blocks is running
    ABORTED = "aborted"


class ArrivedBlocks(NamedTuple):
    """A `Blocks` message with its payload frames."""

    message: Blocks
    payload: Sequence[Buffer]


class CopyRest(NamedTuple):
    """Asks for a rest after a copy while the migrating request goes on. The sender hears of it in the end."""

    until: float
    taken: Taken


class ReceiveTransfer(Machine[ReceiveState, ReceiveEvent, ReceiveEffect]):
    """Receives one request from the engine ``peer`` into ``blocks``, the physical blocks of all ``reserve.num_tokens``.

    A migration's grow in number.
    The first ``num_matched_tokens`` (whole blocks, shared with the prefix cache) are never written.
    """

    rules: ClassVar[Mapping[ReceiveState, Mapping[type, Rule[ReceiveState]]]]
    tolerated: ClassVar[frozenset[type]] = frozenset(
        {Reserve, Extend, ArrivedBlocks, Commit, Abort, Grown, NotGrown, Cancelled, PeerLost}
    )

    def __init__(
        self,
        peer: str,
        reserve: Reserve,
        *,
        blocks: Sequence[int],
        num_matched_tokens: int,
        transport: str,
        limits: TransferLimits,
        now: float,
    ) -> None:
        super().__init__(ReceiveState.RESERVED)
        self.id = reserve.transfer
        self.peer = peer
        self.reserve = reserve
        self._blocks = list(blocks)
        self._num_matched_blocks = num_matched_tokens // reserve.shape.block_size
        self._transport = transport
        self._limits = limits
        self._heard_at = now
        self._seen: set[int] = set()  # numbers of Blocks messages
        self._queue: list[ArrivedBlocks] = []  # no more than the window
        self._running: ArrivedBlocks | None = None
        self._num_intact: dict[int, int] = {}  # tokens by logical block
        self._commit: Commit | None = None
        self._committed: Committed | None = None  # the answer
        self._is_waiting = True  # for announced blocks that have not come
        self._resting: CopyRest | None = None
        self._num_endings = 0

    def __repr__(self) -> str:
        running = None if self._running is None else self._running.message.seq
        return (
            f"<ReceiveTransfer {self.id} from {self.peer} {self.state.value} {self._transport}"
            f" seen={sorted(self._seen)} queued={len(self._queue)} running={running} kept={self.num_kept_tokens}>"
        )

    @property
    def is_over(self) -> bool:
        """Return whether nothing will follow: the blocks are adopted or released."""
        return self.state in (ReceiveState.COMMITTED, ReceiveState.ABORTED)

    @property
    def has_adopted(self) -> bool:
        """The request is ours. Whoever asks again is told again."""
        return self.state is ReceiveState.COMMITTED

    def forget_request(self) -> None:
        """Let go of the request's tokens and blocks, which are of no use any more once it was adopted."""
        self._blocks, self._num_intact = [], {}
        spec = msgspec.structs.replace(self.reserve.spec, prompt=[], generated=[])
        self.reserve = msgspec.structs.replace(self.reserve, spec=spec)

    @property
    def num_kept_tokens(self) -> int:
        """Length of the prefix whose KV is here and intact, or was when it was adopted."""
        if self._committed is not None:
            return self._committed.num_kept_tokens
        size, kept = self.reserve.shape.block_size, self._num_matched_blocks * self.reserve.shape.block_size
        for block in range(self._num_matched_blocks, len(self._blocks)):
            intact = self._num_intact.get(block, 0)
            kept += intact
            if intact < size:
                break
        return kept

    def start(self) -> list[ReceiveEffect]:
        return [self._reserved()]

    def _find_deadline(self) -> float | None:
        match self.state:
            case ReceiveState.RESERVED:
                ends_at = self._heard_at + self.reserve.deadline_s
                return ends_at if self._resting is None else min(ends_at, self._resting.until)
            case ReceiveState.SETTLING if self._is_waiting:
                return self._heard_at + self._limits.grace_s
        return None

    def handle(self, event: ReceiveEvent, now: float, payload: Sequence[Buffer] = ()) -> list[ReceiveEffect]:
        """Take an event; ``payload`` is the frames of a `Blocks` message. Return the effects to carry out, in order."""
        self._expire(now)
        self._step(ArrivedBlocks(event, payload) if isinstance(event, Blocks) else event, now)
        return self._take_effects()

    def _expire(self, now: float) -> None:
        if self.state is ReceiveState.RESERVED and self._resting is not None and now >= self._resting.until:
            self._end_rest()
            self._settle(now)
        super()._expire(now)

    # --- actions ------------------------------------------------------------------------------------------------------

    def _reserved(self) -> Send:
        size = self.reserve.shape.block_size
        return Send(self.peer, Reserved(self.id, self._num_matched_blocks * size, self._transport))

    def _on_reserve_again(self, message: Reserve, now: float) -> None:
        self._emit(self._reserved())

    def _on_extend(self, message: Extend, now: float) -> None:
        self._heard_at = now
        missing = -(-message.num_tokens // self.reserve.shape.block_size) - len(self._blocks)
        if missing > 0:
            self._emit(GrowReserved(self.id, missing))
        else:
            self._emit(self._extended())

    def _on_grown(self, event: Grown, now: float) -> None:
        self._blocks += event.blocks
        self._emit(self._extended())

    def _on_not_grown(self, event: NotGrown, now: float) -> None:
        self._queue.clear()
        self._emit(Send(self.peer, Declined(self.id, RefusalCode.NO_MEMORY, event.reason)))

    def _extended(self) -> Send:
        return Send(self.peer, Extended(self.id, len(self._blocks) * self.reserve.shape.block_size))

    def _on_blocks(self, arrival: ArrivedBlocks, now: float) -> None:
        if self.state is ReceiveState.RESERVED:
            self._heard_at = now
        message = arrival.message
        if message.seq in self._seen or len(self._seen) >= MOST_SEEN:
            self.ignored["Blocks"] += 1
            return
        self._seen.add(message.seq)
        if self._can_take(message):
            self._queue.append(arrival)
        else:
            self.ignored["unfit Blocks"] += 1
            self._emit(Send(self.peer, Taken(self.id, message.seq, ok=False)))

    def _can_take(self, message: Blocks) -> bool:
        """Whether the message fits the reservation and the window; the transport checks the bytes."""
        size, count = self.reserve.shape.block_size, len(message.source_blocks)
        return (
            message.seq >= 0
            and message.first_block >= self._num_matched_blocks
            and message.first_block + count <= len(self._blocks)
            and max(0, (count - 1) * size) < message.num_tokens <= count * size
            and len(self._queue) + (self._running is not None) < self._limits.window
        )

    def _on_imported(self, event: Imported, now: float) -> None:
        assert self._running is not None, "an import ended that was not running"
        message, self._running = self._running.message, None
        if event.ok:
            self._num_intact |= self._tokens_by_block(message)
        taken = Taken(self.id, message.seq, event.ok)
        rest_s = self._rest_s(event.elapsed_s, len(message.source_blocks))
        if rest_s > 0 and event.ok:
            self._resting = CopyRest(now + rest_s, taken)
        else:
            self._emit(Send(self.peer, taken))

    def _rest_s(self, copied_s: float, num_copied: int) -> float:
        """After a copy of some blocks, lest the decodes of both engines be slowed.

        Never so long that the reservation may end, nor that a long context's rests take most of the migration's time.
        """
        if self.state is not ReceiveState.RESERVED or not self.reserve.is_migration or self.reserve.must_leave:
            return 0.0
        longest_s = min(self.reserve.deadline_s / 4, self._limits.migration_s / 2 * num_copied / len(self._blocks))
        return min(copied_s * (1 / self._limits.migration_share - 1), longest_s)

    def _end_rest(self) -> None:
        if self._resting is not None:
            self._emit(Send(self.peer, self._resting.taken))
            self._resting = None

    def _tokens_by_block(self, message: Blocks) -> dict[int, int]:
        size, first, last = self.reserve.shape.block_size, message.first_block, len(message.source_blocks) - 1
        tokens = dict.fromkeys(range(first, first + last), size)
        tokens[first + last] = message.num_tokens - last * size
        return tokens

    def _on_commit(self, message: Commit, now: float) -> None:
        self._heard_at = now
        self._commit = message
        self._end_rest()

    def _on_commit_again(self, message: Commit, now: float) -> None:
        assert self._committed is not None, "it was adopted"
        self._emit(Send(self.peer, self._committed))

    def _on_late_commit(self, message: Commit, now: float) -> None:
        self._send_abort("the reservation has ended")

    def _stop_waiting(self, event: DeadlinePassed | PeerLost, now: float) -> None:
        self._is_waiting = False

    def _on_abort(self, message: Abort, now: float) -> None:
        self._queue.clear()
        self._send_abort("acknowledged")  # so that the sender knows that nothing it sent is in transit

    def _on_expired(self, event: DeadlinePassed, now: float) -> None:
        self._queue.clear()
        self._send_abort(f"no message for {self.reserve.deadline_s:g} s")

    def _on_cancelled(self, event: Cancelled, now: float) -> None:
        self._queue.clear()
        self._send_abort(event.reason)

    def _on_lost(self, event: PeerLost, now: float) -> None:
        self._queue.clear()

    def _on_import_outlived(self, event: Imported, now: float) -> None:
        self._running = None

    def _send_abort(self, reason: str) -> None:
        self._emit(Send(self.peer, Abort(self.id, reason)))

    # --- transitions without an event ---------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        self._import_next()
        if self.state is ReceiveState.ABORTING and self._running is None:
            self.state = ReceiveState.ABORTED
            self._num_endings += 1
            self._emit(ReleaseReserved(self.id, self._blocks))
        elif self.state is ReceiveState.SETTLING and self._running is None and not self._is_missing_blocks:
            self.state = ReceiveState.COMMITTED
            self._num_endings += 1
            self._adopt(now)

    def _import_next(self) -> None:
        if self._running is not None or self._resting is not None or not self._queue:
            return
        self._running = self._queue.pop(0)
        message = self._running.message
        first, last = message.first_block, message.first_block + len(message.source_blocks)
        for block in self._num_intact.keys() & range(first, last):
            del self._num_intact[block]
        self._emit(
            ImportBlocks(
                self.id,
                self.reserve.spec.service,
                self._transport,
                self.peer,
                self.reserve.memory,
                message,
                self._running.payload,
                self._blocks[first:last],
            )
        )

    @property
    def _is_missing_blocks(self) -> bool:
        assert self._commit is not None, "only Commit says how many there are"
        announced = self._commit.num_blocks_messages
        return self._is_waiting and sum(0 <= seq < announced for seq in self._seen) < announced

    def _adopt(self, now: float) -> None:
        commit = self._commit
        assert commit is not None, "only after Commit"
        waited, first = now - self._heard_at, commit.first_token_age_s
        self._committed = committed = Committed(self.id, self.num_kept_tokens)
        self._emit(
            Adopt(
                self.id,
                self.reserve.spec,
                self.reserve.epoch,
                commit.generated,
                self._blocks,
                committed.num_kept_tokens,
                commit.age_s + waited,
                None if first is None else first + waited,
                commit.logprobs,
                commit.found,
            )
        )
        self._emit(Send(self.peer, committed))

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is consistent."""
        assert self._num_endings == self.is_over, f"blocks are adopted or released once, at the end: {self!r}"
        assert not self.is_over or self._running is None, f"a copy outlived the transfer: {self!r}"
        assert not self._queue or self._running is not None or self._resting, f"blocks wait, none is copied: {self!r}"
        assert len(self._queue) < self._limits.window, f"window exceeded: {self!r}"
        assert all(block >= self._num_matched_blocks for block in self._num_intact), f"wrote a shared block: {self!r}"


def _ends(act: Callable[..., None]) -> Rule[ReceiveState]:
    """`_settle` goes on to ABORTED at once where no copy is running."""
    return Rule(ReceiveState.ABORTING, act)


ReceiveTransfer.rules = {
    ReceiveState.RESERVED: {
        Reserve: Rule(ReceiveState.RESERVED, ReceiveTransfer._on_reserve_again),
        Extend: Rule(ReceiveState.RESERVED, ReceiveTransfer._on_extend),
        Grown: Rule(ReceiveState.RESERVED, ReceiveTransfer._on_grown),
        NotGrown: _ends(ReceiveTransfer._on_not_grown),
        ArrivedBlocks: Rule(ReceiveState.RESERVED, ReceiveTransfer._on_blocks),
        Imported: Rule(ReceiveState.RESERVED, ReceiveTransfer._on_imported),
        Commit: Rule(ReceiveState.SETTLING, ReceiveTransfer._on_commit),
        Abort: _ends(ReceiveTransfer._on_abort),
        Cancelled: _ends(ReceiveTransfer._on_cancelled),
        PeerLost: _ends(ReceiveTransfer._on_lost),
        DeadlinePassed: _ends(ReceiveTransfer._on_expired),
    },
    ReceiveState.SETTLING: {
        ArrivedBlocks: Rule(ReceiveState.SETTLING, ReceiveTransfer._on_blocks),
        Imported: Rule(ReceiveState.SETTLING, ReceiveTransfer._on_imported),
        Abort: _ends(ReceiveTransfer._on_abort),
        Cancelled: _ends(ReceiveTransfer._on_cancelled),
        PeerLost: Rule(ReceiveState.SETTLING, ReceiveTransfer._stop_waiting),
        DeadlinePassed: Rule(ReceiveState.SETTLING, ReceiveTransfer._stop_waiting),
    },
    ReceiveState.COMMITTED: {Commit: Rule(ReceiveState.COMMITTED, ReceiveTransfer._on_commit_again)},
    ReceiveState.ABORTING: {
        Imported: Rule(ReceiveState.ABORTING, ReceiveTransfer._on_import_outlived),
        Commit: Rule(ReceiveState.ABORTING, ReceiveTransfer._on_late_commit),
    },
    ReceiveState.ABORTED: {Commit: Rule(ReceiveState.ABORTED, ReceiveTransfer._on_late_commit)},
}
