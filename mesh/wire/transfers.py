"""The transfer protocol between engines (`kvtransfer.protocol`)."""

from typing import Annotated, Literal

import msgspec

from mesh.wire.bounds import MAX_TOKENS, Count, Digest, Finite, Metadata, Name, NumTokens, Seconds, Tokens
from mesh.wire.requests import Epoch, Found, RefusalCode, RequestSpec, TokenLogprobs

MemoryKind = Literal["DRAM", "VRAM"]  # as NIXL names them


class DeviceRef(msgspec.Struct, frozen=True):
    """The GPU that a KV pool lies on. ``handle`` opens it in processes of the same host (CUDA IPC)."""

    uuid: Name
    handle: bytes
    has_nccl: bool
    allows_two_ranks: bool = False  # of one NCCL communicator on the GPU


class NixlRef(msgspec.Struct, frozen=True):
    """How agents of NIXL read a KV memory, from any host. The agent's name is the memory's token.

    Header and counters begin at ``address`` of the host's memory, the pages at ``pages_address``, in memory of ``kind``
    and, on a GPU, of device ``number``.
    """

    metadata: Metadata
    address: Count
    pages_address: Count
    kind: MemoryKind = "DRAM"
    number: Count = 0


class MemoryRef(msgspec.Struct, frozen=True):
    """Tells a process on the same host where it can read a KV pool. ``token`` proves that both see the same memory.

    With ``device``, only header and generations lie at ``path``; the pages are on that GPU. With ``nixl``, processes of
    other hosts can read it, too.
    """

    host: Name
    path: Name
    size_bytes: Count
    token: Name
    device: DeviceRef | None = None
    nixl: NixlRef | None = None


class KVShape(msgspec.Struct, frozen=True):
    """The layout of a service's KV blocks. Blocks can move between pools of equal shapes only."""

    num_layers: Count
    num_kv_heads: Count
    head_dim: Count
    block_size: Count  # tokens
    dtype: Name
    form: Name = ""  # of the bytes of a block, where a kernel has one of its own


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """Asks the receiver to keep blocks for this request's tokens; blocks will follow.

    Carries the request, so that the receiver can run it.
    """

    transfer: Name
    spec: RequestSpec
    epoch: Epoch  # the epoch under which the receiver will own the request
    num_tokens: NumTokens  # whose KV the sender expects to send
    shape: KVShape
    memory: MemoryRef | None
    deadline_s: Seconds
    is_migration: bool = False  # the request is decoding: its tokens grow, and `Extend` asks for more
    min_freeness: Finite | None = None  # that must be left to the receiver, with this request; None: it does not matter
    must_leave: bool = False  # a migration: it does not spare the decodes of either engine
    model: Name = ""  # which one it is (`engines.models.identity`)
    is_pull: bool = False  # answers `Pull`: there is no request to run, and its ``spec`` has no prompt


class Pull(msgspec.Struct, frozen=True, tag=True):
    """Asks an engine for KV blocks of a prefix that it may have, in its pool or in the tiers of its host. It answers
    with `Reserve`, for as many of the first blocks as it has, or with `Declined`.

    ``digests`` are those of the blocks (`engines.memory.block_digests`): who does not know tokens and salt cannot ask.
    ``request`` is the one that wants them, of ``gateway``.
    """

    transfer: Name
    request: Name
    gateway: Name
    service: Name
    model: Name
    shape: KVShape
    digests: Annotated[list[Digest], msgspec.Meta(min_length=1, max_length=MAX_TOKENS)]


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """Answers `Reserve`: blocks are kept. The first ``num_matched_tokens`` (whole blocks) are already here."""

    transfer: Name
    num_matched_tokens: NumTokens
    transport: Name


class Extend(msgspec.Struct, frozen=True, tag=True):
    """Asks the receiver to keep blocks for so many tokens in all, before they are computed."""

    transfer: Name
    num_tokens: NumTokens


class Extended(msgspec.Struct, frozen=True, tag=True):
    """Answers `Extend`: blocks for ``num_tokens`` are kept."""

    transfer: Name
    num_tokens: NumTokens


class Declined(msgspec.Struct, frozen=True, tag=True):
    """Answers `Reserve` or `Extend` with no. What was reserved, if anything, is free again."""

    transfer: Name
    code: RefusalCode
    reason: str


class Blocks(msgspec.Struct, frozen=True, tag=True):
    """Brings or announces the KV of ``num_tokens`` tokens from the block with logical index ``first_block`` on.

    With transports ``shm``, ``cuda-ipc`` and ``nixl``, ``source_blocks`` and ``generations`` say where the receiver
    copies from. With ``tcp`` the block bytes are the payload frames, one a block. With ``nccl`` the first frame says
    how they come (`kvtransfer.gpu.nccl`). ``checksums`` (one a block) are empty when the option is off.
    """

    transfer: Name
    seq: Count
    first_block: Count
    num_tokens: NumTokens
    source_blocks: list[Count]
    generations: list[int]
    checksums: list[int]


class Taken(msgspec.Struct, frozen=True, tag=True):
    """Answers `Blocks`: those of message ``seq`` are copied; ``ok`` is False if they were corrupt or came too late.

    While a migrating request goes on, this is said as late as its copies are to be slow.
    """

    transfer: Name
    seq: Count
    ok: bool


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Makes the receiver the owner. ``generated`` is all tokens so far. The receiver computes the KV beyond what
    arrived.

    ``logprobs``, where they are wanted, are those of its last tokens: of all that were sampled in this attempt.
    """

    transfer: Name
    generated: Tokens
    num_blocks_messages: Count
    age_s: Seconds
    first_token_age_s: Seconds | None
    logprobs: list[TokenLogprobs] | None = None
    found: Found = Found()


class Committed(msgspec.Struct, frozen=True, tag=True):
    """Answers `Commit`: the receiver owns the request, and ``num_kept_tokens`` of its KV arrived intact. The sender
    frees its blocks.
    """

    transfer: Name
    num_kept_tokens: NumTokens


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Tells the other side to forget this transfer and to free what it holds."""

    transfer: Name
    reason: str
