"""Defines the seam between decisions and computation: what a scheduler hands to an executor, and what comes back.

What is made for every token is a msgspec struct: those are made several times as fast as frozen dataclasses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from mesh.wire.images import PlacedImage
from mesh.wire.requests import FailureCode, Pooling, Sampling, TokenLogprobs
from mesh.wire.transfers import KVShape


class Draw(msgspec.Struct, frozen=True):
    """Draw the token that follows a chunk. ``tokens`` is the request's own list, which grows: read, never kept. After
    them come ``drafts``, if there are any, up to the ``position``.
    """

    sampling: Sampling
    tokens: Sequence[int]  # prompt, then generated
    num_prompt: int
    position: int  # of the sampled token in them; with the seed it keys the random generator
    request: str = ""  # whose answer it is
    pooling: Pooling | None = None  # what is wanted is a vector of the prompt, whose last token the chunk has
    drafts: Sequence[int] = ()  # taken to be right

    @property
    def num_generated(self) -> int:
        return self.position - self.num_prompt

    @property
    def generated(self) -> Sequence[int]:
        return self.tokens[self.num_prompt : self.position]


class Drafting(msgspec.Struct, frozen=True):
    """Tokens that a draft model writes of a request before the step checks them.

    The draft model computes the request's tokens from ``start`` to before ``end``, and then writes ``number`` that may
    follow; with 0 it only computes.
    """

    service: str  # of the draft model, on the same engine
    blocks: Sequence[int]  # of its pool, which cover the tokens and the drafts but for the last one
    start: int  # its KV of all earlier positions is in the blocks
    end: int
    number: int


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive tokens of one request to compute: one token of a decode, some of a prefill."""

    request: str
    tokens: Sequence[int]
    start: int  # position of the first; KV of all earlier positions is in the blocks
    blocks: Sequence[int]  # physical block ids that cover positions 0 .. start + len(tokens) - 1
    draw: Draw | None = None  # None: more of the prompt follows
    prompt_logprobs: int | None = None  # k: log-probabilities of these tokens, each given its predecessors
    adapter: str = ""  # key of the LoRA adapter with which it is computed; empty: none
    images: Sequence[PlacedImage] = ()  # of the whole prompt
    drafts: Sequence[int] = ()  # of a decode: tokens that may follow, to be checked; the blocks cover them, too
    drafting: Drafting | None = None  # of a decode without ``drafts``: how they are to be written


class Rows(NamedTuple):
    """What an iteration of a padded batch computes: so many rows of ``num_tokens`` after ``num_before``, all alike.

    ``num_left``: iterations that the batch may have, this one included.
    """

    num_rows: int
    num_tokens: int
    num_before: int
    num_left: int

    def after(self, num_decodes: int) -> "Rows":
        """Return what a decode is after so many more of them."""
        return self._replace(num_before=self.num_before + num_decodes, num_left=self.num_left - num_decodes)


@dataclass(frozen=True, slots=True)
class Batch:
    """One iteration of one service. ``rows``: of an engine that pads; the chunks are what is wanted of them.
    ``num_forced``: tokens that grammars force after those that are sampled are wanted, so many of a request at most.
    """

    service: str
    chunks: Sequence[Chunk]
    rows: Rows | None = None
    num_forced: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.tokens) + len(chunk.drafts) for chunk in self.chunks)


class Unsampled(msgspec.Struct, frozen=True):
    """Why no token was sampled where one was wanted.

    Without a ``code`` the mask of its grammar is late: the request's last token is computed again. With one the request
    fails, alone; ``reason`` is for its client.
    """

    reason: str = ""
    code: FailureCode | None = None


class ChunkResult(msgspec.Struct, frozen=True):
    """The result of one chunk. ``token`` is None where nothing was to be sampled, or nothing could be: ``unsampled``
    says why.
    """

    token: int | None = None
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: Sequence[TokenLogprobs | None] | None = None  # one a token of the chunk; None at position 0
    unsampled: Unsampled | None = None
    vector: bytes | None = None  # float32, with `POOLED_TOKEN`, of a request that is pooled
    further: "Sequence[ChunkResult]" = ()  # what was sampled after each draft that proved right, in order
    num_checked: int = 0  # drafts that there were
    forced: Sequence[int] = ()  # tokens that its grammar forces next, as far as they are known

    @property
    def drawn(self) -> list[int]:
        """Return all tokens that were sampled."""
        return [one.token for one in (self, *self.further) if one.token is not None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """Results in the order of the batch's chunks, and how long the step took. ``had_extra_threads``: it had more than
    the engine's own, so it says nothing of what such steps cost. ``drafting_s``: of that time, the seconds of each step
    of a draft model, in order (`engines.speculation.drafting`).
    """

    chunks: Sequence[ChunkResult]
    elapsed_s: float
    had_extra_threads: bool = False
    drafting_s: Sequence[float] = ()

    @property
    def tokens_a_decode(self) -> float:
        """Tokens that each decode got, on average."""
        return 1 + sum([len(chunk.further) for chunk in self.chunks]) / len(self.chunks)


class StepExecutor(Protocol):
    """Computes batches over KV pools. Called from one thread only."""

    def shape(self, service: str) -> KVShape: ...

    def execute(self, batch: Batch) -> StepResult: ...

    def recover(self, *, frees_memory: bool) -> None:
        """Recover after a batch failed. With ``frees_memory``, let go what is kept for speed alone.

        Raise whatever the device says if it computes nothing any more.
        """
