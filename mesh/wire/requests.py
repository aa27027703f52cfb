"""Requests on the wire: from gateways to engines, and the engines' answers."""

from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from mesh.rules import Lateness
from mesh.wire.adapters import LoraAdapter
from mesh.wire.bounds import Count, Finite, Name, Priority, Promise, Seconds, TokenId, Tokens, Vector
from mesh.wire.control import PrefillMode, PrefillOrder
from mesh.wire.images import Images

PRIORITY_BATCH: Final = -1_000_000  # below whatever clients and topologies may say


class Epoch(NamedTuple):
    """Orders the owners of a request: a later owner's epoch is greater.

    ``attempt`` is raised by the gateway when it dispatches the request anew, ``hop`` by engines each time that they
    hand it over. Epochs compare as tuples.
    """

    attempt: Count
    hop: Count = 0

    def handed_over(self) -> "Epoch":
        return Epoch(self.attempt, self.hop + 1)


class FinishReason(StrEnum):
    """Says why a request ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Says how tokens are sampled. Stop *strings* are the gateway's business: engines know token ids only."""

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


class Pooling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Says that a request wants one vector of its prompt and no tokens. ``first_tokens``: of the prompt, that belong to
    the first text of a pair; 0: it is one text.

    The vector stands where the first token would: the request ends with one token that means nothing.
    """

    first_tokens: Count = 0


POOLED_TOKEN = 0  # stands for a vector among the tokens of a request


class RequestSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything an engine needs to run a request, from the start or as a continuation of ``generated``.

    ``service`` is what engines hold; with an ``adapter``, clients asked for that one's service.
    """

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
    at_least: tuple[Count, ...] = ()  # likewise, tokens that it will hardly be shorter than
    pooling: Pooling | None = None  # None: it wants tokens
    adapter: LoraAdapter | None = None  # of the service's model, with which it is computed
    images: Images = ()  # that the prompt shows, in order
    late: Lateness | None = None  # what becomes of it if it is late; None: what the policy does
    cache_salt: Name = ""  # it shares KV with requests of the same salt only

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.generated)

    @property
    def is_filler(self) -> bool:
        """Return whether nothing was promised for it: it only gets what promises leave."""
        return self.priority <= PRIORITY_BATCH

    @property
    def asked(self) -> str:
        """Return the service that the client asked for."""
        return self.service if self.adapter is None else self.adapter.service

    @property
    def prefix_salt(self) -> bytes:
        """Return what tells its prefixes from those of the same tokens under other weights, with other images, or of
        others that may not know of them.
        """
        key = b"" if self.adapter is None else self.adapter.key.encode()
        key = b"|".join([key, *(image.digest for image in self.images)]) if self.images else key
        return blake2b(self.cache_salt.encode(), digest_size=16).digest() + key if self.cache_salt else key

    def answer_tokens(self, num_generated: int) -> int:
        """Return how many tokens the answer is expected to have, now that it has ``num_generated``. Without an
        expectation, that is all it may have.
        """
        for num_tokens in self.expected:
            if num_tokens > num_generated:
                return num_tokens
        return max(self.sampling.max_tokens, num_generated + 1)

    def least_tokens(self, num_generated: int) -> int:
        """Return how many tokens the answer will hardly be shorter than, now that it has ``num_generated``. Without
        a prediction that is one more.
        """
        for num_tokens in self.at_least:
            if num_tokens > num_generated:
                return num_tokens
        return num_generated + 1


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one position: of the chosen token, and of the likeliest ones, likeliest first."""

    token: TokenId
    logprob: float
    top: list[tuple[TokenId, float]]


class Brought(NamedTuple):
    """Tells of KV of a request's first tokens for which an engine waited, instead of computing it. ``peer``: the engine
    that it was pulled from; None: it came from ``tiers`` of the engine's host.
    """

    num_tokens: Count
    waited_s: Seconds
    peer: Name | None
    tiers: list[Name]


class Found(NamedTuple):
    """Tells of the prompt tokens of a request that were not computed, and of those which were loaded or pulled."""

    num_cached_tokens: Count = 0
    brought: Brought | None = None


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of one request. ``offset`` counts generated tokens: the first generated token has offset 0."""

    request: Name
    epoch: Epoch
    offset: Count
    tokens: Tokens
    finish: FinishReason | None = None
    num_cached_tokens: Count = 0  # prompt tokens that were not computed, but found, loaded or pulled
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    vector: Vector | None = None  # with the one token of a request that is pooled
    brought: Brought | None = None  # with the first token, of those that were loaded or pulled


class PrefixAt(NamedTuple):
    """Says where KV of a request's first ``num_tokens`` tokens likely is: on that engine, or in tiers of its host."""

    engine: Name
    num_tokens: Count


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to run this request. With ``decode_engine``, it hands the request over there after the prefill;
    otherwise it keeps it.
    """

    spec: RequestSpec
    epoch: Epoch
    decode_engine: Name | None = None
    multiplex: bool = False  # the policy counts on the slack of running decodes: check it again
    prefill: PrefillMode = PrefillMode.CHUNKED
    order: PrefillOrder = PrefillOrder.URGENCY
    slice_tokens: Count | None = None  # to give it back after, if it has not ended by then (`SlicesEnded`); None: never
    stays: bool = False  # the policy counts on it decoding here, even on an engine that only prefills
    prefix_at: PrefixAt | None = None  # from where this engine may pull what it lacks; None: nobody has more


class SubmitBatch(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to run these requests of one service together: those that are not refused are one static batch.

    An engine that has no static batches takes them one by one.
    """

    submits: list[Submit]


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to stop a request wherever it stands and to free what it holds, unless it came there under a
    later epoch.

    Unknown requests are ignored.
    """

    request: Name
    epoch: Epoch


class ProbeQuestion(NamedTuple):
    """Asks about one request: ``next_offset`` is that of the first token which has not arrived."""

    request: Name
    attempt: Count
    next_offset: Count


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Asks an engine which of these requests it has. It resends what it said of those from the next offset on.

    Asked of an engine that has not spoken of them, or of whose words some were lost. The answer takes the way of
    tokens, refusals and moves, and so comes after all that was said of them before it.
    """

    requests: list[ProbeQuestion]


class Recall(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine to refuse this request if it has not begun there: another engine suits it better by now."""

    request: Name
    epoch: Epoch


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
    LATE = "late"  # its first token would come too late here, and in time on another engine
    UNKNOWN_OWNER = "unknown_owner"  # a migration broke off between Commit and Committed: either engine may have it


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """Says that the engine owns the request now. Statuses numbered ``status_seq`` and later count it."""

    request: Name
    epoch: Epoch
    status_seq: Count


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Says that the engine does not own the request, or no longer does: the gateway dispatches it anew."""

    request: Name
    epoch: Epoch
    code: RefusalCode
    reason: str


class Moved(msgspec.Struct, frozen=True, tag=True):
    """Says that the engine ``to`` owns the request now, under ``epoch``."""

    request: Name
    epoch: Epoch
    to: Name


class SlicesEnded(msgspec.Struct, frozen=True, tag=True):
    """Says that these requests have sampled as many tokens as `Submit.slice_tokens` allowed and have left: dispatch
    them anew.
    """

    requests: list[tuple[Name, Epoch]]


class NotHeld(msgspec.Struct, frozen=True, tag=True):
    """Answers `Probe`: these requests are neither here nor expected. It is not sent if there are none."""

    requests: list[tuple[Name, Count]]


class Holding(NamedTuple):
    """Tells where one request stands. ``num_ahead``: requests of its service that wait here before it; None: it does
    not wait, it has begun here.
    """

    request: Name
    attempt: Count
    num_ahead: Count | None


class Held(msgspec.Struct, frozen=True, tag=True):
    """Answers `Probe`: these requests are here, and there is nothing to say of them yet. It is not sent if there are
    none. It is sent unasked of those that wait for long: a gateway that gave one up cancels it again.
    """

    requests: list[Holding]


class StepTokens(msgspec.Struct, frozen=True, tag=True):
    """Carries what one step produced for one gateway: one message however many requests."""

    deltas: list[Delta]


class FailureCode(StrEnum):
    """Says why an engine gave up a request. It would fail elsewhere, too, but for `STEP` and `BROKEN`."""

    STEP = "step"  # a step that computed nothing else failed, or the model's output for it was not a number
    GRAMMAR = "grammar"  # its grammar cannot be followed, or takes too long or too much memory
    INVALID = "invalid"  # it asks for what the model does not have: tokens, or a longer context
    SAMPLING = "sampling"  # its parameters leave no probabilities to sample from
    CUT = "cut"  # its stream broke off, and no other server can go on with it
    ADAPTER = "adapter"  # the engine could not load its LoRA adapter
    BROKEN = "broken"  # the server that it was sent to broke off, or was silent for too long


class Failed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Says that an engine gave up this request and does not have it any more. ``reason`` is for the client."""

    request: Name
    epoch: Epoch
    reason: str
    code: FailureCode = FailureCode.STEP
