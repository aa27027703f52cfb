"""Every message of the mesh, as typed structs in MessagePack.

Theory of operation. Each process binds two sockets. Its *inbox* takes one-way messages from any peer; a reply is a
message to the sender's inbox. Its *broadcast* publishes what it says to everybody: its status. There are no
request-reply sockets, so no conversation can wedge: a reply that does not come is a deadline that passes.

A message is a list of frames::

    inbox      [version, sender, body, *payload]
    broadcast  [topic, version, sender, body]         an empty body: the sender lives, and says no more

``version`` is `WIRE_VERSION`. ``sender`` is ``process@incarnation`` in UTF-8. ``body`` is a MessagePack map whose key
``type`` names the struct, so that any MessagePack library can read it. ``payload`` frames are raw bytes (KV blocks),
never encoded.

Durations are seconds (``_s``), relative to the moment of sending: clocks of different hosts are never compared.
"""

import re
from enum import StrEnum
from math import inf
from typing import Generic, NamedTuple, TypeVar

import msgspec

from mesh.wire.bounds import (
    MAX_BODY_BYTES,
    Amount,
    Count,
    Difference,
    Estimate,
    Finite,
    Freeness,
    Name,
    NumTokens,
    Priority,
    Promise,
    Seconds,
    Slack,
    TokenId,
    Tokens,
    Total,
    Until,
)

WIRE_VERSION = b"ms1"
TOPIC_STATUS = b"status"
TOPIC_TAP = b"tap"
MOST_PREFILLS = 32  # that a status tells one by one

MAX_SENDER_BYTES = 256

# Of a policy: what JSON and TOML can say of settings, two levels deep.
Setting = bool | int | Finite | str | None
Parameter = Setting | list[Setting | list[Setting]] | dict[str, Setting]

T = TypeVar("T")
_SENDER = re.compile(rb"([A-Za-z0-9_.-]+~?)@([0-9]{1,18})")


class WireError(ValueError):
    """A frame that is not ours, of another version, or malformed. The message says which."""


class Sender(NamedTuple):
    """Who sent a message: the process and the life of it that did."""

    process: str
    incarnation: int

    def encode(self) -> bytes:
        return f"{self.process}@{self.incarnation}".encode()

    @classmethod
    def decode(cls, frame: bytes) -> "Sender":
        """Raise `WireError` unless it names a process, in ASCII, and a number that fits 64 bits."""
        match = _SENDER.fullmatch(frame) if len(frame) <= MAX_SENDER_BYTES else None
        if match is None:
            raise WireError(f"bad sender frame {frame[:64]!r}: want process@incarnation")
        return cls(match[1].decode(), int(match[2]))


class Epoch(NamedTuple):
    """Orders the owners of a request: a later owner's epoch is greater.

    ``attempt`` is raised by the gateway when it dispatches the request anew, ``hop`` by engines each time that they
    hand it over. Epochs compare as tuples.
    """

    attempt: Count
    hop: Count = 0

    def handed_over(self) -> "Epoch":
        return Epoch(self.attempt, self.hop + 1)


class Role(StrEnum):
    """What the routing policy uses an engine for. Every engine can do everything."""

    PREFILL = "prefill"
    DECODE = "decode"
    MULTIPLEX = "multiplex"


class PrefillMode(StrEnum):
    """How a prompt's chunks share iterations with the decodes of the same engine."""

    CHUNKED = "chunked"  # together with them, up to the engine's chunk_tokens (Sarathi-Serve)
    FIRST = "first"  # before them: they wait until the prompt is done (vLLM without chunks; Tropical's multiplexing)
    SLACK = "slack"  # together with them, as much as their slack allows


class PrefillOrder(StrEnum):
    """Which of the prompts that wait on an engine comes next, within a priority."""

    URGENCY = "urgency"  # those past their TTFT deadline, and their service's, then the shortest
    LENGTH = "length"  # the shortest, whoever starves (shortest job first)
    ARRIVAL = "arrival"  # first come, first served
    DEADLINE = "deadline"  # earliest TTFT deadline first, also before one that has begun; the late get another


class ProcessState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STUCK = "stuck"  # an engine whose step does not end: it hears, but computes nothing


class FinishReason(StrEnum):
    """Why a request ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How tokens are drawn. Stop *strings* are the gateway's business: engines know token ids only."""

    max_tokens: Count
    seed: int
    temperature: Finite = 1.0
    top_p: Finite = 1.0
    top_k: Count = 0  # 0: off
    min_p: Finite = 0.0
    presence_penalty: Finite = 0.0
    frequency_penalty: Finite = 0.0
    repetition_penalty: Finite = 1.0
    logit_bias: dict[TokenId, Finite] = msgspec.field(default_factory=dict)
    stop_token_ids: tuple[TokenId, ...] = ()
    ignore_eos: bool = False
    min_tokens: Count = 0
    logprobs: Count | None = None  # None: off; k >= 0: the token's own and the k likeliest
    prompt_logprobs: Count | None = None
    grammar: str = ""  # that answers keep to (`engines.grammars`); empty: none


class RequestSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything an engine needs to run a request, from the start or as a continuation of ``generated``."""

    id: Name
    gateway: Name
    service: Name
    prompt: Tokens
    sampling: Sampling
    slo_ttft_s: Promise
    slo_tpot_s: Promise
    priority: Priority = 0  # larger is more urgent
    generated: Tokens = msgspec.field(default_factory=list)
    age_s: Seconds = 0.0  # since the gateway accepted the request
    first_token_age_s: Seconds | None = None  # since the first token was produced, for continuations
    expected: tuple[Count, ...] = ()  # tokens of its answer; then, each time that it outgrows that, as many

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.generated)

    def answer_tokens(self, num_generated: int) -> int:
        """That the answer is expected to have, now that it has so many; nothing expected: all that it may have."""
        for num_tokens in self.expected:
            if num_tokens > num_generated:
                return num_tokens
        return max(self.sampling.max_tokens, num_generated + 1)


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one position: of the chosen token, and of the likeliest ones, likeliest first."""

    token: TokenId
    logprob: float
    top: list[tuple[TokenId, float]]


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of one request. ``offset`` counts generated tokens: the first generated token has offset 0."""

    request: Name
    epoch: Epoch
    offset: Count
    tokens: Tokens
    finish: FinishReason | None = None
    num_cached_tokens: Count = 0  # prompt tokens that were not computed because of a prefix hit
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None


# --- gateway to engine ------------------------------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Run this request. With ``decode_engine``, hand it over there after the prefill; otherwise keep it."""

    spec: RequestSpec
    epoch: Epoch
    decode_engine: Name | None = None
    multiplex: bool = False  # the policy counts on the slack of running decodes: check it again
    prefill: PrefillMode = PrefillMode.CHUNKED
    order: PrefillOrder = PrefillOrder.URGENCY
    slice_tokens: Count | None = None  # to give it back after, if it has not ended by then (`SlicesEnded`); None: never


class SubmitBatch(msgspec.Struct, frozen=True, tag=True):
    """Run these requests of one service together: those that are not refused are one static batch.

    An engine that has no static batches takes them one by one.
    """

    submits: list[Submit]


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Stop a request wherever it stands and free what it holds, unless it came here under a later epoch.

    Unknown requests are ignored.
    """

    request: Name
    epoch: Epoch


class Question(NamedTuple):
    """About one request: ``next_offset`` is that of the first token which has not arrived."""

    request: Name
    attempt: Count
    next_offset: Count


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Which of these requests do you have? Of those, say again what you said from the next offset on.

    Asked of an engine that has not spoken of them, or of whose words some were lost. The answer takes the way of
    tokens, refusals and moves, and so comes after all that was said of them before it.
    """

    requests: list[Question]


class Recall(msgspec.Struct, frozen=True, tag=True):
    """Refuse this request if it has not begun here: another engine suits it better by now."""

    request: Name
    epoch: Epoch


class SetRole(msgspec.Struct, frozen=True, tag=True):
    """Take this role from the next iteration on, if the role was changed ``num_role_changes`` times until now.

    So that of several gateways that saw the same status and ask for the same thing, one is heard.
    """

    role: Role
    num_role_changes: Count


class Migrate(msgspec.Struct, frozen=True, tag=True):
    """Move a request that decodes here to the engine ``to``, while it goes on. ``reason`` is for logs.

    What came of it is in the engine's statuses; the gateway hears `Moved`.
    """

    request: Name
    to: Name
    reason: str


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Take nothing new, move all that decodes here to other engines, and refuse prefills that have not begun.

    With ``undo``, serve again.
    """

    undo: bool = False


class Load(msgspec.Struct, frozen=True, tag=True):
    """Serve this service of the topology, too, once its weights are here. What came of it is in the statuses."""

    service: Name


class Unload(msgspec.Struct, frozen=True, tag=True):
    """Serve this service no more: let its requests move to other engines or end, then drop it."""

    service: Name


class Place(msgspec.Struct, frozen=True):
    """What the placement plan ``number``, of ``num_engines`` engines, wants of one of them."""

    number: Count
    num_engines: Count
    services: tuple[Name, ...]
    role: Role


class Announce(msgspec.Struct, frozen=True, tag=True):
    """Repeat this in all statuses, unless a plan with a higher number is known. Nothing else is to be done."""

    place: Place


# --- engine to gateway ------------------------------------------------------------------------------------------------


class RefusalCode(StrEnum):
    DRAINING = "draining"
    FULL = "full"  # queue bound reached
    NO_MEMORY = "no_memory"  # the KV pool cannot hold it at all, or the decode engine could not reserve
    NO_SLACK = "no_slack"
    UNKNOWN_SERVICE = "unknown_service"
    PEER_SILENT = "peer_silent"  # the decode engine did not answer the reservation in time
    GATEWAY_SILENT = "gateway_silent"  # the gateway was silent for so long that its requests were dropped
    TRANSFER_FAILED = "transfer_failed"
    RECALLED = "recalled"  # its gateway asked for it
    UNKNOWN_OWNER = "unknown_owner"  # a migration broke off between Commit and Committed: either engine may have it


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The engine owns the request now. Statuses numbered ``status_seq`` and later count it."""

    request: Name
    epoch: Epoch
    status_seq: Count


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The engine does not own the request (any more); dispatch it anew."""

    request: Name
    epoch: Epoch
    code: RefusalCode
    reason: str


class Moved(msgspec.Struct, frozen=True, tag=True):
    """The engine ``to`` owns the request now, under ``epoch``."""

    request: Name
    epoch: Epoch
    to: Name


class SlicesEnded(msgspec.Struct, frozen=True, tag=True):
    """These have drawn the tokens that `Submit.slice_tokens` allowed and are not here any more: dispatch them anew."""

    requests: list[tuple[Name, Epoch]]


class NotHeld(msgspec.Struct, frozen=True, tag=True):
    """An answer to `Probe`: these are neither here nor expected. Not said if there are none."""

    requests: list[tuple[Name, Count]]


class Holding(NamedTuple):
    """``num_ahead``: requests of its service that wait here before it; None: it does not wait, it has begun here."""

    request: Name
    attempt: Count
    num_ahead: Count | None


class Held(msgspec.Struct, frozen=True, tag=True):
    """An answer to `Probe`: these are here, and there is nothing to say of them yet. Not said if there are none."""

    requests: list[Holding]


class StepTokens(msgspec.Struct, frozen=True, tag=True):
    """What one step produced for one gateway: one message however many requests."""

    deltas: list[Delta]


class FailureCode(StrEnum):
    """Why an engine gave up a request. It would fail elsewhere, too, but for `STEP`."""

    STEP = "step"  # a step that computed nothing else failed, or the model's output for it was not a number
    GRAMMAR = "grammar"  # its grammar cannot be followed, or takes too long or too much memory
    INVALID = "invalid"  # it asks for what the model does not have: tokens, or a longer context
    SAMPLING = "sampling"  # its parameters leave no probabilities to sample from


class Failed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An engine gave up this request; it is not there any more. ``reason`` is for the client."""

    request: Name
    epoch: Epoch
    reason: str
    code: FailureCode = FailureCode.STEP


# --- engine to engine: the transfer protocol (kvtransfer/protocol.py) -------------------------------------------------


class DeviceRef(msgspec.Struct, frozen=True):
    """The GPU that a KV pool lies on. ``handle`` opens it in processes of the same host (CUDA IPC)."""

    uuid: Name
    handle: bytes
    has_nccl: bool
    allows_two_ranks: bool = False  # of one NCCL communicator on the GPU


class MemoryRef(msgspec.Struct, frozen=True):
    """Where a KV pool can be read by a process on the same host. ``token`` proves that both see the same memory.

    With ``device``, only header and generations lie at ``path``; the pages are on that GPU.
    """

    host: Name
    path: Name
    size_bytes: Count
    token: Name
    device: DeviceRef | None = None


class KVShape(msgspec.Struct, frozen=True):
    """The layout of a service's KV blocks. Blocks can move between pools of equal shapes only."""

    num_layers: Count
    num_kv_heads: Count
    head_dim: Count
    block_size: Count  # tokens
    dtype: Name
    form: Name = ""  # of the bytes of a block, where a kernel has one of its own


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """Sender: keep blocks for this request's tokens; blocks will follow.

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


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """Receiver: blocks are kept. The first ``num_matched_tokens`` (whole blocks) are already here."""

    transfer: Name
    num_matched_tokens: NumTokens
    transport: Name


class Extend(msgspec.Struct, frozen=True, tag=True):
    """Sender: keep blocks for so many tokens in all, before they are computed."""

    transfer: Name
    num_tokens: NumTokens


class Extended(msgspec.Struct, frozen=True, tag=True):
    """Receiver: blocks for ``num_tokens`` are kept."""

    transfer: Name
    num_tokens: NumTokens


class Declined(msgspec.Struct, frozen=True, tag=True):
    """Receiver: no. What was reserved, if anything, is free again."""

    transfer: Name
    code: RefusalCode
    reason: str


class Blocks(msgspec.Struct, frozen=True, tag=True):
    """Sender: KV of ``num_tokens`` tokens from the block with logical index ``first_block`` on.

    With transports ``shm`` and ``cuda-ipc``, ``source_blocks`` and ``generations`` say where the receiver copies from;
    with ``tcp`` the block bytes are the payload frames, one a block; with ``nccl`` the first frame says how they come
    (`kvtransfer.nccl`). ``checksums`` (one a block) are empty when the option is off.
    """

    transfer: Name
    seq: Count
    first_block: Count
    num_tokens: NumTokens
    source_blocks: list[Count]
    generations: list[int]
    checksums: list[int]


class Taken(msgspec.Struct, frozen=True, tag=True):
    """Receiver: the blocks of message ``seq`` are copied; ``ok`` is False if they were corrupt or came too late.

    While a migrating request goes on, this is said as late as its copies are to be slow.
    """

    transfer: Name
    seq: Count
    ok: bool


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Sender: the request is yours. ``generated`` is all tokens so far; KV beyond what arrived is yours to compute.

    ``logprobs``, where they are wanted, are those of its last tokens: of all that were drawn in this attempt.
    """

    transfer: Name
    generated: Tokens
    num_blocks_messages: Count
    age_s: Seconds
    first_token_age_s: Seconds | None
    logprobs: list[TokenLogprobs] | None = None


class Committed(msgspec.Struct, frozen=True, tag=True):
    """Receiver: I own the request; ``num_kept_tokens`` of its KV arrived intact. The sender frees its blocks."""

    transfer: Name
    num_kept_tokens: NumTokens


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Either side: forget this transfer and free what it holds."""

    transfer: Name
    reason: str


# --- anybody to a supervisor or process -------------------------------------------------------------------------------


class PolicyChoice(msgspec.Struct, frozen=True):
    """A dispatch policy for all gateways, with all its parameters. The highest version wins; 0 is the topology's."""

    name: Name
    parameters: dict[Name, Parameter]
    version: Count = 0


class SetPolicy(msgspec.Struct, frozen=True, tag=True):
    """To a gateway: dispatch by this policy from now on, unless you know of a later choice."""

    choice: PolicyChoice


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To a supervisor: stop the processes of its host, after draining them unless ``now``."""

    now: bool = False


class SetRunning(msgspec.Struct, frozen=True, tag=True):
    """To a supervisor: start this process of its host, or let it drain and end, and keep it so."""

    process: Name
    running: bool


# --- broadcast --------------------------------------------------------------------------------------------------------


class PrefillCost(msgspec.Struct, frozen=True):
    """Seconds of a prefill of n tokens after c cached ones.

    ``fixed + per_token n + per_token_context n (c + n / 2) + per_cached_token c``, or the sum of that over chunks of
    ``chunk_tokens``; 0: in one chunk. Where there is a ``table`` of (n, seconds), the line through its points stands in
    for the first two terms. Beyond its last point each token adds ``per_token``.
    """

    fixed_s: Seconds
    per_token_s: Seconds
    per_token_context_s: Seconds = 0.0
    per_cached_token_s: Seconds = 0.0
    chunk_tokens: Count = 0
    table: tuple[tuple[Count, Seconds], ...] = ()


class DecodeCost(msgspec.Struct, frozen=True):
    """Seconds of a decode step of b requests with total context c.

    ``fixed + per_request b + per_context_token c + per_mean_context_token c / b``. Where there is a ``table`` of
    (b, seconds), the line through its points stands in for the first two: small batches take other kernels than large
    ones. Beyond its last point each request adds ``per_request``.
    """

    fixed_s: Seconds
    per_request_s: Seconds
    per_context_token_s: Seconds = 0.0
    table: tuple[tuple[Count, Seconds], ...] = ()
    per_mean_context_token_s: Seconds = 0.0


class Demand(msgspec.Struct, frozen=True):
    """What the requests of a service on an engine are expected to need until they end, by `RequestSpec.expected`.

    ``peaks``: pairs of (steps from now, tokens), ascending; up to so many steps, and since the pair before, they hold
    the KV of at most so many tokens (Aladdin's demand vector). The errors are those of Aladdin's algorithm 2.
    """

    num_requests: Count = 0
    prompt_tokens: Count = 0
    answer_tokens: Count = 0  # of whole answers
    tpot_slo_s: Promise = inf  # their tightest promise
    peaks: tuple[tuple[Count, Count], ...] = ()
    error_requests: Difference = 0  # that run on beyond their first prediction, less those that ended too early
    error_tokens: Difference = 0  # more than first predicted, less those that did not come


class ServiceStatus(msgspec.Struct, frozen=True):
    """What an engine says about one of its services."""

    name: Name
    num_blocks: Count
    num_free_blocks: Count  # unused, or reclaimable from the prefix cache
    block_size: Count
    prefill_cost: PrefillCost
    decode_cost: DecodeCost
    prefill_error: Estimate | None = None  # 90th percentile of |measured / predicted - 1| of late; None: too few
    decode_error: Estimate | None = None
    num_running: Count = 0  # requests that hold blocks
    freeness: Freeness = (
        0.0  # tokens of head room for each running request (engines/transfers/freeness.py); -inf: being emptied
    )
    is_leaving: bool = False  # it is being unloaded and takes nothing new
    demand: Demand | None = None  # None: nothing is expected of any request's answer
    weight_bytes: Count = 0  # that its weights take; 0: not known
    growth_blocks: Count = 0  # free ones that are promised to slices of what runs; 0: there are no slices
    held_by_priority: list[tuple[Priority, Count]] = []  # blocks of what runs; nothing while half of all are free
    model: Name = ""  # which one it is (`engines.models.identity`); empty: not known


class PendingPrefill(NamedTuple):
    """A prefill that is not done."""

    due_s: Until  # until its TTFT deadline, or a later one if it cannot be in time for that
    left_s: Seconds  # predicted, of computing
    priority: Priority = 0


class FailedLoad(NamedTuple):
    """A service that an engine could not load when it was last told to, and has not loaded since."""

    service: Name
    reason: str
    number: Count  # of all loads that failed in this life of the engine: tells a new failure from an old one


class EngineStatus(msgspec.Struct, frozen=True, tag=True):
    """An engine's own account of itself. Others see it with its age."""

    seq: Count
    state: ProcessState
    role: Role
    host: Name
    pid: Count
    services: list[ServiceStatus]
    num_running: Count  # requests that hold KV: in the decode batch, or being prefilled
    num_waiting: Count  # accepted, prefill not finished and not running
    num_tokens: Count  # context tokens of all requests held
    prefill_remaining_s: Seconds  # of the prefill running now; 0: none is
    prefill_waiting_s: Seconds  # predicted, of all the prefills that wait
    decode_step_s: Seconds  # predicted, of the next step
    min_slack_s: Slack | None  # of the running decodes that can keep their TPOT promise; None: there are none
    min_tpot_slo_s: Promise | None = None  # the tightest promise of those; None: there are none
    prefills: list[PendingPrefill] = []  # the first of them to be due, as many as `MOST_PREFILLS`
    pace_s: Seconds = 0.0  # from one step with decodes to the next, of late; 0: nothing decodes
    num_role_changes: Count = 0
    num_devices: Count = 1  # that the engine computes on (tensor times pipeline parallelism)
    num_reserved: Count = 0  # transfers expected
    cancelled_total: Count = 0
    preemptions_total: Count = 0
    num_parked: Count = 0  # requests whose KV is in host memory, or on its way there or back
    slices_kept_total: Count = 0  # ends of slices after which the request stayed
    slices_moved_total: Count = 0
    slices_parked_total: Count = 0
    num_migrating_out: Count = 0
    num_migrating_in: Count = 0
    migrations_total: Count = 0  # of requests that left
    migrations_aborted_total: Count = 0  # they went on here, or had ended
    last_aborted_migration: str | None = None  # which request, where to, and why not
    place: Place | None = None  # in the newest placement plan that it heard of
    loading: list[Name] = []  # services whose weights are on their way
    failed_loads: list[FailedLoad] = []
    weight_memory: Count | None = None  # bytes that weights may take in all; None: nobody said
    error: str | None = None


class ServiceTally(msgspec.Struct, frozen=True):
    """What a gateway has seen of a service since it began: sums, so that two of them tell what was between them.

    Lengths are tokens: prompts of all that arrived, answers of all that were answered. ``late`` ended without having
    met both SLOs, whatever became of them, unless their client went away.
    """

    name: Name
    arrived: Count = 0
    input_tokens: Count = 0
    input_squares: Total = 0
    ended: Count = 0  # but for those whose client went away
    late: Count = 0
    answered: Count = 0
    output_tokens: Count = 0
    output_squares: Total = 0
    latency_s: Seconds = 0.0  # of all that were answered, from arrival to end
    gone: Count = 0  # whose client went away; with those that ended, the others of those that arrived are still there


class CountSpread(msgspec.Struct, frozen=True):
    """How numbers of requests in windows that follow each other differ: sums over ``pairs`` of such windows.

    ``arrived``: half of what came in both; ``squares``: half the square of the difference. With Poisson arrivals they
    are as much.
    """

    pairs: Count = 0
    arrived: Amount = 0.0
    squares: Amount = 0.0


class Wanted(msgspec.Struct, frozen=True):
    """Requests of a service that wait in a gateway as they fit no engine, and how many more engines they would fill."""

    service: Name
    role: Role  # of the engines that are short
    num_requests: Count
    num_engines: Count


class Memory(msgspec.Struct, frozen=True):
    """What a placement daemon leaves to the one that comes after it: gateways repeat it.

    ``estimate``: the normalised latency that the running interval is expected to bring. Plans up to ``settled`` are
    carried out or given up: where engines are otherwise, somebody has changed them since. ``seen``: what services were
    asked for in the ``seen_intervals`` before this one, of ``seen_s`` together, in which it was the same;
    ``seen_spreads``, by service: in what bursts.
    """

    interval: Count  # its number
    interval_s: Seconds  # its length
    estimate: Estimate | None = None
    settled: Count = 0
    services: list[Name] = []  # that are to be served: none of them is without an engine for long
    seen: list[ServiceTally] = []
    seen_s: Seconds = 0.0
    seen_intervals: Count = 0
    seen_spreads: dict[str, CountSpread] = {}


class Mark(msgspec.Struct, frozen=True):
    """What a gateway had counted when an interval of the placement daemon began, ``age_s`` ago."""

    memory: Memory
    age_s: Seconds
    services: list[ServiceTally]


class GatewayStatus(msgspec.Struct, frozen=True, tag=True):
    seq: Count
    state: ProcessState
    host: Name
    pid: Count
    url: Name
    num_requests: Count
    num_waiting: Count
    policy: PolicyChoice | None = None  # that it runs
    policy_age_s: Seconds = 0.0  # since it took it
    breakers: dict[str, str] = {}  # engines to which it sends nothing for now (open), or one request (half-open)
    services: list[ServiceTally] = []  # those that anybody has asked for
    wanted: list[Wanted] = []  # engines, now; of policies that pack
    mark: Mark | None = None  # None: it heard of no placement daemon
    admin_url: str = ""  # of metrics and of what operators ask


class Forecast(msgspec.Struct, frozen=True):
    """Attainment and mean normalised latency."""

    attainment: Estimate
    normalized_latency: Estimate


class ServiceForecast(msgspec.Struct, frozen=True):
    """What a service was asked for in an interval, and how much of it was, or would have been, in time.

    Lengths are mean and deviation, in tokens. Attainments are None where nobody asked for anything.
    """

    name: Name
    rate: Estimate  # requests a second
    num_input: tuple[Estimate, Estimate]
    num_output: tuple[Estimate, Estimate]
    achieved: Estimate | None = None
    predicted: Estimate | None = None  # with the plan that was in force
    proposed: Estimate | None = None  # with the one that was found
    dispersion: Estimate = 1.0  # variance of the number of requests in some seconds, over its mean; 1: Poisson arrivals


class Decision(msgspec.Struct, frozen=True):
    """What the placement daemon made of an interval. ``places``: what it found for each engine; empty: nothing."""

    interval: Count
    verdict: str
    reason: str  # in words
    plan: Count  # that was in force
    interval_s: Seconds
    search_s: Seconds = 0.0
    places: dict[str, Place] = {}
    services: list[ServiceForecast] = []
    achieved: Forecast | None = None
    predicted: Forecast | None = None
    proposed: Forecast | None = None
    num_loads: Count = 0  # copies of weights that the change takes
    homeless: list[str] = []  # services without a place, and why, a line each


class PoolStatus(msgspec.Struct, frozen=True):
    """Engines that are counted together: how many are needed, and how many are wanted within their bounds."""

    name: Name
    num_wanted: Count
    least: Count
    most: Count
    need: Estimate
    problem: str = ""  # why the need cannot be met, or is not known


class PlacementStatus(msgspec.Struct, frozen=True, tag=True):
    """The placement daemon's own account of itself."""

    seq: Count
    state: ProcessState
    host: Name
    pid: Count
    mode: str  # "apply", "shadow" or "off"
    doing: str  # in words
    plan: Count  # the newest one that the engines know of; 0: none
    next_decision_s: Until  # until then, at the earliest
    memory: Memory | None = None  # None: it has not heard enough yet
    interval_age_s: Seconds = 0.0
    decision: Decision | None = None  # the last one
    decision_age_s: Seconds = 0.0
    made: Decision | None = None  # the one that the plan in force comes from, if it is this daemon's
    made_age_s: Seconds = 0.0
    decisions_total: dict[str, int] = {}  # by verdict
    changes_total: Count = 0  # plans that were carried out
    changes_failed_total: Count = 0
    error: str | None = None  # what went wrong last, until something goes right
    pools: list[PoolStatus] = []  # those that it scales


class ChildStatus(msgspec.Struct, frozen=True):
    """A process as its supervisor sees it."""

    process: Name
    kind: str  # "engine", "gateway" or "placement"
    pid: Count | None
    state: str  # "starting", "running", "restarting", "leaving", "standby" or "stopped"
    num_restarts: Count
    last_exit: str | None = None
    ended_incarnation: Count = 0  # its lives up to this one are over, whatever is still heard of them; 0: none is


class SupervisorStatus(msgspec.Struct, frozen=True, tag=True):
    seq: Count
    host: Name
    pid: Count
    children: list[ChildStatus]
    stopping: bool = False


TransferMessage = Reserve | Reserved | Extend | Extended | Declined | Blocks | Taken | Commit | Committed | Abort
EngineMessage = (
    Submit
    | SubmitBatch
    | Cancel
    | Recall
    | Probe
    | SetRole
    | Migrate
    | Drain
    | Load
    | Unload
    | Announce
    | TransferMessage
)
EngineAnswer = Accepted | Refused | Moved | SlicesEnded | Held | NotHeld | StepTokens | Failed
GatewayMessage = EngineAnswer | SetPolicy
SupervisorMessage = Stop | SetRunning
BroadcastMessage = EngineStatus | GatewayStatus | PlacementStatus | SupervisorStatus
Message = EngineMessage | GatewayMessage | SupervisorMessage | BroadcastMessage

_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


class Codec(Generic[T]):
    """Decodes the bodies that one socket may receive."""

    def __init__(self, union: object) -> None:
        self._decoder = msgspec.msgpack.Decoder(union)

    def decode(self, body: bytes | memoryview) -> T:
        """Raise `WireError` on anything that is not one of the socket's messages."""
        if len(body) > MAX_BODY_BYTES:
            raise WireError(f"malformed body: {len(body)} bytes, at most {MAX_BODY_BYTES} are")
        try:
            return self._decoder.decode(body)  # type: ignore[no-any-return]
        except Exception as error:  # the decoder's own, but UnicodeDecodeError, RecursionError and MemoryError, too
            raise WireError(f"malformed body: {str(error)[:200]}") from None
