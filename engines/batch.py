"""What a local scheduler hands to an executor, and what comes back: the seam between decisions and computation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mesh.messages import KVShape, Sampling, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw the token that follows a chunk. The histories are the request's own (for penalties): read, never kept."""

    sampling: Sampling
    prompt: Sequence[int]
    generated: Sequence[int]

    @property
    def position(self) -> int:
        """Index of the drawn token in prompt + generated; with the seed it keys the random generator."""
        return len(self.prompt) + len(self.generated)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one request to compute: one token of a decode, some of a prefill."""

    request: str
    tokens: Sequence[int]
    start: int  # position of the first; KV of all earlier positions is in the blocks
    blocks: Sequence[int]  # physical block ids that cover positions 0 .. start + len(tokens) - 1
    draw: Draw | None = None  # None: more of the prompt follows
    prompt_logprobs: int | None = None  # k: log-probabilities of these tokens, each given its predecessors


@dataclass(frozen=True, slots=True)
class Batch:
    """One iteration of one service."""

    service: str
    chunks: Sequence[Chunk]

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """``token`` is None where nothing was to be drawn."""

    token: int | None = None
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: Sequence[TokenLogprobs | None] | None = None  # one a token of the chunk; None at position 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """Results in the order of the batch's chunks, and how long the step took."""

    chunks: Sequence[ChunkResult]
    elapsed_s: float


class StepExecutor(Protocol):
    """Computes batches over KV pools. Called from one thread only."""

    def shape(self, service: str) -> KVShape: ...

    def execute(self, batch: Batch) -> StepResult: ...
