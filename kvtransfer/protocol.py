"""The transfer protocol: how a request and its KV move from one engine to another.

It carries hand-overs after the prefill and migrations of running requests (docs/concepts/migration.md).

Theory of operation. Two machines, one at each end, know nothing of sockets, clocks, threads or memory. An event goes in
(a message of the peer, or something that happened here) together with the time; effects come out, which the engine
carries out in order::

    effects = transfer.handle(event, now)

A transfer as it should be::

    SendTransfer                                      ReceiveTransfer (made when blocks were reserved)
    start                   -- Reserve -->
                            <-- Reserved --           start
    BlocksReady   ExportBlocks
    Exported                -- Blocks 0 -->           ImportBlocks
                            <-- Taken 0 --            Imported
    CommitRequested ...     -- Blocks n -->           ...
                            -- Commit -->             (when all announced blocks are in) Adopt
    Completed, ReleaseSource <-- Committed --

A migration (``Reserve.is_migration``) takes the same way while its request goes on decoding. Its tokens grow: whenever
fewer than half of `TransferLimits.headroom_blocks` are left of what is reserved, the sender asks for more::

    BlocksReady             -- Extend -->             GrowReserved
                            <-- Extended --           Grown          (or NotGrown: Declined, and all is free)

Once `SendTransfer.is_nearly_done` the engine stops the request and requests the commit: downtime is that of the last
blocks, whatever the context. Blocks that a migration could not deliver while the request went on end it (the request
is better off where it is).

Ownership. Until Commit the sender owns the request; from Adopt on the receiver does. Between the two nobody computes.
If the sender hears nothing in between it reports Failed; the receiver may own the request nevertheless, and the
gateway's newer epoch makes one of the two outputs void. A receiver that has adopted ignores Abort for the same
reason: only the gateway knows which owner counts.

Loss. KV is an optimisation: a Blocks message that is lost, corrupt, malformed or too late only lowers the number of
tokens that are kept, and the receiver computes the rest. After the first Taken(ok=False) the sender sends no more
blocks, only Commit. Reserve, Extend and Commit must be answered, so each is resent every ``TransferLimits.repeat_s``
until it is; the receiver answers again.

Pace. What a migration copies while its request goes on would slow the decodes of both engines. So the receiver copies
one message at a time then, and says Taken only when it has rested from it: copies take
``TransferLimits.migration_share`` of the time. When Commit comes, rest is over. What must leave
(``Reserve.must_leave``) does not rest.

Deadlines. The sender waits `TransferLimits.reply_s` for Reserved, and `Reserve.deadline_s` for the next sign of a peer
that owes it one. The receiver keeps a reservation for `Reserve.deadline_s` after the sender's last message, so this
must cover the sender's longest silence: the wait for its turn and one chunk of prefill. A machine whose deadline has
passed fails before it looks at the event, however late it is called. A request stands still from CommitRequested on, so
from then on the peer has ``TransferLimits.patience_s`` only: a hand-over that makes no progress costs more than to
compute the prompt anew. Until then all of a migration may take ``TransferLimits.migration_s``.

Blocks in transit. With ``shm``, ``cuda-ipc`` and ``nixl`` the receiver sees by generation numbers that a block was
reused under it. With ``tcp`` the sender's own network thread reads the blocks some time after they were handed to it.
So a transfer that fails *lingers*. Its blocks are released when the peer has acknowledged all Blocks messages or the
Abort, or when it died: its connection is dropped then with all that was queued. Otherwise they are released after
another ``deadline_s``, which is longer than the receiver keeps the reservation.

Endings. Each machine says exactly once that its blocks are free (ReleaseSource, ReleaseReserved) or adopted (Adopt),
never while a copy into them is running. A machine that `is_over` can be forgotten, one that has adopted after a while:
its Committed may be lost. `reply_to_unknown` answers what still comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mesh.transports import CUDA_IPC, NCCL, NIXL, SHM, TCP
from mesh.wire.messages import Message
from mesh.wire.requests import Epoch, Found, RefusalCode, RequestSpec, TokenLogprobs
from mesh.wire.transfers import (
    Abort,
    Blocks,
    Commit,
    Committed,
    Declined,
    Extend,
    Extended,
    MemoryRef,
    Reserve,
    Reserved,
    Taken,
)

# Whether the sender's own threads read blocks after the export. ``nccl`` sends a copy of them.
READS_LATER = {CUDA_IPC: False, NCCL: False, NIXL: False, SHM: False, TCP: True}

Buffer = bytes | bytearray | memoryview
ToSender = Reserved | Extended | Declined | Taken | Committed | Abort
ToReceiver = Reserve | Extend | Blocks | Commit | Abort


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Bounds of a transfer. Both ends have the same ones."""

    reply_s: float = 1.0  # sender: an answer to Reserve
    grace_s: float = 0.5  # receiver: for blocks that were announced but have not come when Commit comes
    window: int = 4  # Blocks messages not yet acknowledged
    message_bytes: int = 8 * 2**20  # of KV in one Blocks message, but one block at least
    headroom_blocks: int = 4  # a migration keeps up to so many reserved beyond its tokens
    last_stage_blocks: int = 2  # of a migration, that may be left when its request stops
    migration_share: float = 1.0  # of the time that copies may take, while the request that they move goes on
    migration_s: float = 60.0  # for a migration, until its request stops

    @property
    def repeat_s(self) -> float:
        """Seconds after which a message that must be answered is resent."""
        return self.reply_s / 4

    def patience_s(self, reserve: Reserve, anew_s: float) -> float:
        """Return for how long a request that stands still waits for a peer that makes no progress.

        Its blocks can be computed anew in ``anew_s``. Who waits for as long as that, and no longer, loses at most twice
        what would have been lost at best.
        """
        least_s = self.reply_s + self.grace_s
        return least_s if reserve.is_migration else min(reserve.deadline_s, max(least_s, anew_s))


# --- events besides messages ------------------------------------------------------------------------------------------


class BlocksReady(msgspec.Struct, frozen=True):
    """Tells the sender that KV of the first ``num_tokens`` tokens is computed, in ``block_table`` (physical
    block ids).
    """

    num_tokens: int
    block_table: Sequence[int]


class Exported(msgspec.Struct, frozen=True):
    """Tells the sender that `ExportBlocks` number ``seq`` is done."""

    seq: int
    generations: list[int]
    checksums: list[int]
    payload: Sequence[Buffer]


class CommitRequested(msgspec.Struct, frozen=True):
    """Tells the sender to hand over. The request will not be computed here any more; ages are as of now."""

    generated: list[int]
    num_tokens: int  # whose KV is computed
    block_table: Sequence[int]
    age_s: float
    first_token_age_s: float | None
    logprobs: list[TokenLogprobs] | None = None  # of the last ones of ``generated``
    found: Found = Found()


class Imported(msgspec.Struct, frozen=True):
    """Tells the receiver that `ImportBlocks` number ``seq`` is done; ``ok`` is False if what was copied is not what was
    sent.
    """

    seq: int
    ok: bool
    elapsed_s: float = 0.0  # of copying


@dataclass(frozen=True, slots=True)
class Grown:
    """Tells the receiver that `GrowReserved` is done; these are the new physical blocks."""

    blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class NotGrown:
    """Tells the receiver that `GrowReserved` cannot be done."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The engine wants the transfer to end now. Ignored when it has already ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The process at the other end is dead."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """Made by the machine itself."""


SendEvent = (
    Reserved
    | Extended
    | Declined
    | Taken
    | Committed
    | Abort
    | BlocksReady
    | Exported
    | CommitRequested
    | Cancelled
    | PeerLost
    | DeadlinePassed
)
ReceiveEvent = (
    Reserve | Extend | Blocks | Commit | Abort | Imported | Grown | NotGrown | Cancelled | PeerLost | DeadlinePassed
)

# --- effects ----------------------------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    """Send a message, with payload frames if any, to the process ``to``."""

    to: str
    message: Message
    payload: Sequence[Buffer] = ()


class ExportBlocks(msgspec.Struct, frozen=True):
    """Let the transport prepare these physical blocks for sending to ``peer``; answer with `Exported`."""

    transfer: str
    service: str
    transport: str
    seq: int
    blocks: list[int]
    peer: str


class ImportBlocks(msgspec.Struct, frozen=True):
    """Let the transport copy the blocks of a message to the physical blocks ``destinations``; answer with `Imported`.

    One at a time for each transfer. A worker thread may do it, nothing else touches ``destinations`` meanwhile.
    """

    transfer: str
    service: str
    transport: str
    peer: str
    source: MemoryRef | None  # the sender's pool
    message: Blocks
    payload: Sequence[Buffer]
    destinations: list[int]


class ReleaseSource(msgspec.Struct, frozen=True):
    """Says at the sender that the transfer does not read the request's blocks any more."""

    transfer: str


class Completed(msgspec.Struct, frozen=True):
    """Says at the sender that the peer owns the request, and ``num_kept_tokens`` of its KV."""

    transfer: str
    num_kept_tokens: int


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """Says at the sender that the transfer failed; the request is not the peer's as far as is known. Not said after
    Cancelled.
    """

    transfer: str
    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True)
class GrowReserved:
    """Asks at the receiver for so many blocks more. Answer at once with `Grown` or `NotGrown`."""

    transfer: str
    num_blocks: int


@dataclass(frozen=True, slots=True)
class ReleaseReserved:
    """Tells the receiver's engine to free all ``blocks`` that were reserved, matched ones too."""

    transfer: str
    blocks: list[int]


class Adopt(msgspec.Struct, frozen=True):
    """Makes the request the receiver's under ``epoch``. ``blocks`` hold KV of its first ``num_kept_tokens`` tokens."""

    transfer: str
    spec: RequestSpec
    epoch: Epoch
    generated: list[int]
    blocks: list[int]
    num_kept_tokens: int
    age_s: float
    first_token_age_s: float | None
    logprobs: list[TokenLogprobs] | None = None
    found: Found = Found()


SendEffect = Send | ExportBlocks | ReleaseSource | Completed | TransferFailed
ReceiveEffect = Send | ImportBlocks | GrowReserved | ReleaseReserved | Adopt
Effect = SendEffect | ReceiveEffect


def reply_to_unknown(message: ToSender | ToReceiver) -> Abort | None:
    """The answer to a message about a transfer that is not known here (any more), so that the peer need not wait."""
    if isinstance(message, Reserved | Extend | Extended | Blocks | Commit):
        return Abort(message.transfer, "no such transfer here")
    return None
