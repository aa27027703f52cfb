"""Tells vLLM of each batch which requests are new to it, which go on, and which it may forget.

vLLM's model runner keeps the requests of the step before: tokens, block tables, the token that it sampled. A decode
that goes on costs it a few numbers then. Everything else is told as a new request: a prompt whose KV before the chunk
is computed already, which is what prefix hits, chunks, continuations and requests from other engines are to it. What is
not in a batch is forgotten after it, so nothing can leak.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engines.scheduling.batch import Chunk, Draw
from mesh.wire.images import PlacedImage


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that is new to vLLM. ``tokens`` are up to the end of its chunk. Those whose KV is there are zeros:
    nobody reads them any more.
    """

    id: str
    tokens: Sequence[int]
    num_computed: int
    blocks: Sequence[int]
    prompt_logprobs: int | None
    images: Sequence[PlacedImage] = ()  # of the whole prompt
    adapter: str = ""  # key of the LoRA adapter with which it is computed; empty: none


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """One that decodes on. The token to compute is the one that vLLM sampled last."""

    id: str
    num_computed: int
    num_sampled: int  # since it was new
    new_blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class VllmStep:
    """One batch in vLLM's terms. A request that is both forgotten and new begins anew."""

    new: Sequence[NewRequest]
    known: Sequence[KnownRequest]
    forgotten: frozenset[str]
    num_tokens: Mapping[str, int]  # to compute, by request
    draws: Mapping[str, Draw | None]  # of those requests; None: nothing is to be sampled


@dataclass(slots=True)
class _Held:
    """What vLLM knows of a request after a step. ``token`` is at position ``end``."""

    end: int
    token: int
    blocks: list[int]
    num_sampled: int = 1
    adapter: str = ""


@dataclass(slots=True)
class StepPlanner:
    """Remembers what vLLM holds. Each `plan` is followed by `drew` if the step was computed, and by nothing if not.

    ``place_of``: what vLLM is told instead of a block; None: itself.
    """

    block_size: int
    place_of: Callable[[int], int] | None = None
    _held: dict[str, _Held] = field(default_factory=dict)
    _perhaps: set[str] = field(default_factory=set)  # ids that vLLM may hold

    def plan(self, chunks: Sequence[Chunk]) -> VllmStep:
        """Requests of a batch differ."""
        new: list[NewRequest] = []
        known: list[KnownRequest] = []
        for chunk in chunks:
            held = self._held.get(chunk.request)
            if held is not None and self._goes_on(chunk, held):
                blocks = self._blocks(chunk)[len(held.blocks) :]
                known.append(KnownRequest(chunk.request, chunk.start, held.num_sampled, blocks))
            else:
                new.append(self._new(chunk))
        going_on = {request.id for request in known}
        forgotten = frozenset(self._perhaps - going_on)
        num_tokens = {chunk.request: len(chunk.tokens) for chunk in chunks}
        self._held = {name: held for name, held in self._held.items() if name in going_on}
        self._perhaps |= num_tokens.keys()
        return VllmStep(new, known, forgotten, num_tokens, {chunk.request: chunk.draw for chunk in chunks})

    def drew(self, chunks: Iterable[Chunk], tokens: Mapping[str, int]) -> None:
        """The planned step was computed; ``tokens`` are those that were sampled, by request."""
        before, self._held = self._held, {}
        self._perhaps = set()
        for chunk in chunks:
            self._perhaps.add(chunk.request)
            if chunk.request in tokens:
                held, end = before.get(chunk.request), chunk.start + len(chunk.tokens)
                num_sampled = 1 if held is None else held.num_sampled + 1
                token, blocks = tokens[chunk.request], self._blocks(chunk)
                self._held[chunk.request] = _Held(end, token, blocks, num_sampled, chunk.adapter)

    def failed(self) -> None:
        """The planned step was not computed, or nobody knows how far: everything begins anew."""
        self._held = {}

    def _goes_on(self, chunk: Chunk, held: _Held) -> bool:
        follows = chunk.start == held.end and len(chunk.tokens) == 1 and chunk.tokens[0] == held.token
        if not follows or chunk.prompt_logprobs is not None or chunk.adapter != held.adapter:
            return False
        return self._places(chunk.blocks[: len(held.blocks)]) == held.blocks

    def _new(self, chunk: Chunk) -> NewRequest:
        tokens = [*(0 for _ in range(chunk.start)), *chunk.tokens]
        blocks, logprobs = self._blocks(chunk), chunk.prompt_logprobs
        return NewRequest(chunk.request, tokens, chunk.start, blocks, logprobs, chunk.images, chunk.adapter)

    def _blocks(self, chunk: Chunk) -> list[int]:
        """Those that its tokens lie in; more may be kept for later ones."""
        return self._places(chunk.blocks[: -(-(chunk.start + len(chunk.tokens)) // self.block_size)])

    def _places(self, blocks: Sequence[int]) -> list[int]:
        return list(blocks) if self.place_of is None else [self.place_of(block) for block in blocks]
