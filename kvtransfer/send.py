"""The sending end of a transfer: see `kvtransfer.protocol`."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import ClassVar

from kvtransfer.layout import block_bytes
from kvtransfer.machine import Machine, Rule
from kvtransfer.protocol import (
    READS_LATER,
    BlocksReady,
    Cancelled,
    CommitRequested,
    Completed,
    DeadlinePassed,
    ExportBlocks,
    Exported,
    PeerLost,
    ReleaseSource,
    Send,
    SendEffect,
    SendEvent,
    TransferFailed,
    TransferLimits,
)
from mesh.wire.requests import RefusalCode
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Declined, Extend, Extended, Reserve, Reserved, Taken


class SendState(StrEnum):
    RESERVING = "reserving"
    OPEN = "open"
    FLUSHING = "flushing"  # commit requested, blocks are left to send
    COMMITTING = "committing"  # Commit sent
    LINGERING = "lingering"  # failed, but blocks may still be on their way out
    DONE = "done"
    ABORTED = "aborted"


class SendTransfer(Machine[SendState, SendEvent, SendEffect]):
    """Sends one request, which can be computed anew in ``anew_s``, to the engine ``peer``. Blocks may be ready and the
    commit requested while it reserves.
    """

    rules: ClassVar[Mapping[SendState, Mapping[type, Rule[SendState]]]]
    tolerated: ClassVar[frozenset[type]] = frozenset(
        {Reserved, Extended, Declined, Taken, Committed, Abort, Exported, Cancelled, PeerLost}
    )

    def __init__(self, peer: str, reserve: Reserve, limits: TransferLimits, now: float, anew_s: float = inf) -> None:
        super().__init__(SendState.RESERVING)
        self.id = reserve.transfer
        self.peer = peer
        self._reserve = reserve
        self._limits = limits
        self._patience_s = limits.patience_s(reserve, anew_s)
        self._message_blocks = max(1, limits.message_bytes // block_bytes(reserve.shape))
        self._waiting_since = now  # when the peer last made progress, or was first owed an answer
        self._transport = ""
        self._num_tokens = 0  # computed
        self._table: Sequence[int] = ()
        self._next_block = 0  # logical index of the first block not yet exported
        self._next_seq = 0
        self._exporting: dict[int, tuple[int, int, list[int]]] = {}  # seq: first block, tokens, physical blocks
        self._unacknowledged: dict[int, int] = {}  # exporting or sent: number of blocks by message
        self._peer_keeps_blocks = True
        self._commit: CommitRequested | None = None
        self._commit_requested_at = 0.0
        self._num_reserved = reserve.num_tokens
        self._extending_since: float | None = None
        self._said_at = now  # what the peer has to answer
        self._ends_at = now + limits.migration_s if reserve.is_migration else None  # unless it is nearly done
        self._released = False
        self.has_sent_commit = False  # the peer may own the request

    def __repr__(self) -> str:
        return (
            f"<SendTransfer {self.id} to {self.peer} {self.state.value} {self._transport or '-'}"
            f" tokens={self._num_tokens} next_block={self._next_block} unacknowledged={sorted(self._unacknowledged)}>"
        )

    @property
    def is_over(self) -> bool:
        """Return whether nothing will follow: the blocks are released."""
        return self.state in (SendState.DONE, SendState.ABORTED)

    @property
    def is_nearly_done(self) -> bool:
        """A migration of which so little is left that its request may stop for it, with room for its next token."""
        if self.state is not SendState.OPEN or self._num_tokens >= self._num_reserved:
            return False
        num_blocks = -(-self._num_tokens // self._reserve.shape.block_size)
        num_there = self._next_block - sum(self._unacknowledged.values())
        return num_blocks - num_there <= self._limits.last_stage_blocks

    def start(self) -> list[SendEffect]:
        return [Send(self.peer, self._reserve)]

    def _find_deadline(self) -> float | None:
        """Return when the peer is late; None if it owes nothing."""
        repeats_at, fails_at = self._repeats_at, self._fails_at
        if repeats_at is None or fails_at is None:
            return fails_at if repeats_at is None else repeats_at
        return min(repeats_at, fails_at)

    @property
    def _repeats_at(self) -> float | None:
        """When to say again what the peer has not answered: it may be lost like any word."""
        is_asking = self.state in (SendState.RESERVING, SendState.COMMITTING)
        if is_asking or (self.state is SendState.OPEN and self._extending_since is not None):
            return self._said_at + self._limits.repeat_s
        return None

    @property
    def _fails_at(self) -> float | None:
        match self.state:
            case SendState.RESERVING:
                return self._waiting_since + self._limits.reply_s
            case SendState.COMMITTING:
                return self._gives_up_at
            case SendState.LINGERING:
                return self._waiting_since + self._reserve.deadline_s
            case SendState.FLUSHING if self._owes_taken:
                return self._gives_up_at
            case SendState.OPEN:
                stalled_at = self._waiting_since + self._reserve.deadline_s if self._owes_taken else None
                since = self._extending_since
                return _earliest(stalled_at, None if since is None else since + self._limits.reply_s, self._ends_at)
        return None

    @property
    def _gives_up_at(self) -> float:
        """When a peer that owes a sign of progress, once the commit was requested, has owed it for too long."""
        return self._waiting_since + self._patience_s

    @property
    def _in_transit(self) -> set[int]:
        return self._unacknowledged.keys() - self._exporting.keys()

    @property
    def _owes_taken(self) -> bool:
        """Whether the peer has to acknowledge something."""
        return bool(self._unacknowledged) and bool(self._in_transit)

    def _expire(self, now: float) -> None:
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        repeats_at, fails_at = self._repeats_at, self._fails_at
        if repeats_at is None or now < repeats_at or (fails_at is not None and now >= fails_at):
            super()._expire(now)
        elif self.state is SendState.RESERVING:
            self._ask(self._reserve, now)
        elif self.state is SendState.OPEN:
            self._ask(self._extension, now)
        else:
            self._send_commit(now)

    # --- actions ------------------------------------------------------------------------------------------------------

    def _on_reserved(self, message: Reserved, now: float) -> None:
        if message.transport not in READS_LATER:
            self.state = SendState.LINGERING
            self._send_abort(f"unknown transport {message.transport[:32]!r}")
            self._fail(RefusalCode.TRANSFER_FAILED, f"{self.peer} wants an unknown transport", now)
            return
        self._transport = message.transport
        self._next_block = max(0, message.num_matched_tokens) // self._reserve.shape.block_size

    def _on_blocks_ready(self, event: BlocksReady, now: float) -> None:
        self._num_tokens = event.num_tokens
        self._table = event.block_table

    def _on_exported(self, event: Exported, now: float) -> None:
        self._waiting_since = now
        message = Blocks(self.id, event.seq, *self._exporting.pop(event.seq), event.generations, event.checksums)
        self._emit(Send(self.peer, message, event.payload))

    def _on_taken(self, message: Taken, now: float) -> None:
        if message.seq not in self._in_transit:
            self.ignored["Taken"] += 1
            return
        self._waiting_since = now
        del self._unacknowledged[message.seq]
        self._peer_keeps_blocks &= message.ok
        if not message.ok and self._reserve.is_migration and self.state is SendState.OPEN:
            self.state = SendState.LINGERING
            self._send_abort("blocks did not arrive intact")
            self._fail(RefusalCode.TRANSFER_FAILED, f"blocks did not arrive intact at {self.peer}", now)

    def _on_extended(self, message: Extended, now: float) -> None:
        self._extending_since = None
        self._num_reserved = max(self._num_reserved, message.num_tokens)

    def _on_commit_requested(self, event: CommitRequested, now: float) -> None:
        self._commit = event
        self._commit_requested_at = now
        if self._reserve.is_migration:
            self._waiting_since = now
        self._num_tokens = event.num_tokens
        self._table = event.block_table

    def _on_committed(self, message: Committed, now: float) -> None:
        self._release()
        self._emit(Completed(self.id, min(message.num_kept_tokens, self._num_tokens)))

    def _on_declined(self, message: Declined, now: float) -> None:
        self._unacknowledged.clear()
        self._fail(message.code, message.reason, now)

    def _on_no_answer(self, event: DeadlinePassed, now: float) -> None:
        self._send_abort("no answer to the reservation in time")
        self._fail(RefusalCode.PEER_SILENT, f"{self.peer} did not answer within {self._limits.reply_s:g} s", now)

    def _on_stalled(self, event: DeadlinePassed, now: float) -> None:
        reason = f"{self.peer} made no progress in time"
        if self._commit is None and self._ends_at is not None and now >= self._ends_at:
            reason = f"it took longer than {self._limits.migration_s:g} s"
        self._send_abort(reason)
        self._fail(RefusalCode.TRANSFER_FAILED, reason, now)

    def _on_abort(self, message: Abort, now: float) -> None:
        self._unacknowledged.clear()  # the peer has read everything up to here, or never will
        self._fail(RefusalCode.TRANSFER_FAILED, f"{self.peer} aborted: {message.reason}", now)

    def _on_lost_early(self, event: PeerLost, now: float) -> None:
        self._fail(RefusalCode.PEER_SILENT, f"{self.peer} died", now)

    def _on_lost(self, event: PeerLost, now: float) -> None:
        self._unacknowledged.clear()
        self._fail(RefusalCode.TRANSFER_FAILED, f"{self.peer} died", now)

    def _on_cancelled(self, event: Cancelled, now: float) -> None:
        self._waiting_since = now
        self._send_abort(event.reason)

    def _on_late_taken(self, message: Taken, now: float) -> None:
        self._unacknowledged.pop(message.seq, None)

    def _ignore_late(self, event: BlocksReady | CommitRequested, now: float) -> None:
        """The engine cannot know yet that the deadline passed a moment ago: it reads so in the effects."""
        self.ignored[type(event).__name__] += 1

    def _stop_lingering(self, event: object, now: float) -> None:
        self._unacknowledged.clear()

    def _fail(self, code: RefusalCode, reason: str, now: float) -> None:
        self._waiting_since = now
        self._emit(TransferFailed(self.id, code, reason))

    def _send_abort(self, reason: str) -> None:
        self._emit(Send(self.peer, Abort(self.id, reason)))

    def _release(self) -> None:
        self._released = True
        self._emit(ReleaseSource(self.id))

    # --- transitions without an event ---------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        if self.state is SendState.OPEN and self._commit is not None:
            self.state = SendState.FLUSHING
        if self.state is SendState.OPEN and self._reserve.is_migration:
            self._extend(now)
        if self.state in (SendState.OPEN, SendState.FLUSHING):
            self._export()
        if self.state is SendState.FLUSHING and not self._exporting and self._next_block >= self._num_sendable_blocks:
            self.state = SendState.COMMITTING
            self._waiting_since = now
            self._send_commit(now)
        if self.state is SendState.LINGERING and not self._is_read_later:
            self.state = SendState.ABORTED
            self._release()

    @property
    def _is_read_later(self) -> bool:
        """Whether blocks that were handed to the transport may still be read from their place in the pool."""
        return READS_LATER.get(self._transport, False) and bool(self._in_transit)

    @property
    def _num_sendable_tokens(self) -> int:
        """All computed tokens once nothing is written any more; else those of full blocks."""
        size = self._reserve.shape.block_size
        return self._num_tokens if self._commit is not None else self._num_tokens // size * size

    @property
    def _num_sendable_blocks(self) -> int:
        if not self._peer_keeps_blocks:
            return 0
        size = self._reserve.shape.block_size
        return min(-(-self._num_sendable_tokens // size), -(-self._num_reserved // size))

    def _extend(self, now: float) -> None:
        """Ask for room for a migration's next tokens before it needs it."""
        headroom = self._limits.headroom_blocks * self._reserve.shape.block_size
        if self._extending_since is None and self._num_reserved - self._num_tokens < headroom // 2:
            self._extending_since = now
            self._ask(self._extension, now)

    @property
    def _extension(self) -> Extend:
        return Extend(self.id, self._num_tokens + self._limits.headroom_blocks * self._reserve.shape.block_size)

    def _ask(self, message: Reserve | Extend | Commit, now: float) -> None:
        """Say what the peer must answer."""
        self._said_at = now
        self._emit(Send(self.peer, message))

    @property
    def _window(self) -> int:
        """Of a migration that has time, one message at a time while its request goes on."""
        is_paced = self._reserve.is_migration and not self._reserve.must_leave and self.state is SendState.OPEN
        return 1 if is_paced else self._limits.window

    def _export(self) -> None:
        size, end = self._reserve.shape.block_size, self._num_sendable_blocks
        while self._next_block < end and len(self._unacknowledged) < self._window:
            first, last = self._next_block, min(end, self._next_block + self._message_blocks)
            num_tokens = min(self._num_sendable_tokens, last * size) - first * size
            blocks = list(self._table[first:last])
            self._exporting[self._next_seq] = first, num_tokens, blocks
            self._unacknowledged[self._next_seq] = len(blocks)
            service, seq = self._reserve.spec.service, self._next_seq
            self._emit(ExportBlocks(self.id, service, self._transport, seq, blocks, self.peer))
            self._next_seq += 1
            self._next_block = last

    def _send_commit(self, now: float) -> None:
        commit = self._commit
        assert commit is not None, "only a requested commit is sent"
        waited = now - self._commit_requested_at
        first = commit.first_token_age_s
        ages = commit.age_s + waited, None if first is None else first + waited
        self.has_sent_commit = True
        self._ask(Commit(self.id, commit.generated, self._next_seq, *ages, commit.logprobs, commit.found), now)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is consistent."""
        assert len(self._unacknowledged) <= self._limits.window, f"window exceeded: {self!r}"
        assert self._released == self.is_over, f"blocks are released exactly at the end: {self!r}"
        assert self.state is not SendState.COMMITTING or not self._exporting, f"Commit overtook blocks: {self!r}"


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _failures(lost: Callable[..., None], deadline: Callable[..., None]) -> dict[type, Rule[SendState]]:
    """Every failure lingers; `_settle` goes on to ABORTED at once where nothing is in transit."""
    return {
        Abort: Rule(SendState.LINGERING, SendTransfer._on_abort),
        Cancelled: Rule(SendState.LINGERING, SendTransfer._on_cancelled),
        PeerLost: Rule(SendState.LINGERING, lost),
        DeadlinePassed: Rule(SendState.LINGERING, deadline),
    }


SendTransfer.rules = {
    SendState.RESERVING: {
        Reserved: Rule(SendState.OPEN, SendTransfer._on_reserved),
        Declined: Rule(SendState.LINGERING, SendTransfer._on_declined),
        BlocksReady: Rule(SendState.RESERVING, SendTransfer._on_blocks_ready),
        CommitRequested: Rule(SendState.RESERVING, SendTransfer._on_commit_requested),
        **_failures(SendTransfer._on_lost_early, SendTransfer._on_no_answer),
    },
    SendState.OPEN: {
        BlocksReady: Rule(SendState.OPEN, SendTransfer._on_blocks_ready),
        Exported: Rule(SendState.OPEN, SendTransfer._on_exported),
        Taken: Rule(SendState.OPEN, SendTransfer._on_taken),
        Extended: Rule(SendState.OPEN, SendTransfer._on_extended),
        Declined: Rule(SendState.LINGERING, SendTransfer._on_declined),
        CommitRequested: Rule(SendState.FLUSHING, SendTransfer._on_commit_requested),
        **_failures(SendTransfer._on_lost, SendTransfer._on_stalled),
    },
    SendState.FLUSHING: {
        Exported: Rule(SendState.FLUSHING, SendTransfer._on_exported),
        Taken: Rule(SendState.FLUSHING, SendTransfer._on_taken),
        Declined: Rule(SendState.LINGERING, SendTransfer._on_declined),
        **_failures(SendTransfer._on_lost, SendTransfer._on_stalled),
    },
    SendState.COMMITTING: {
        Taken: Rule(SendState.COMMITTING, SendTransfer._on_taken),
        Committed: Rule(SendState.DONE, SendTransfer._on_committed),
        **_failures(SendTransfer._on_lost, SendTransfer._on_stalled),
    },
    SendState.LINGERING: {
        BlocksReady: Rule(SendState.LINGERING, SendTransfer._ignore_late),
        CommitRequested: Rule(SendState.LINGERING, SendTransfer._ignore_late),
        Taken: Rule(SendState.LINGERING, SendTransfer._on_late_taken),
        Abort: Rule(SendState.LINGERING, SendTransfer._stop_lingering),
        PeerLost: Rule(SendState.LINGERING, SendTransfer._stop_lingering),
        DeadlinePassed: Rule(SendState.LINGERING, SendTransfer._stop_lingering),
    },
    SendState.DONE: {},
    SendState.ABORTED: {
        BlocksReady: Rule(SendState.ABORTED, SendTransfer._ignore_late),
        CommitRequested: Rule(SendState.ABORTED, SendTransfer._ignore_late),
    },
}
