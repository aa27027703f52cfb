"""Memory whose content is followed, and an executor whose tokens depend on it.

The executor stores at each position a hash of everything up to it, and draws tokens from the hash at the last position.
A block that was lost, mixed up, reused too early or copied wrongly therefore changes the tokens that come out. The
services of an engine share its memory by the page, and their blocks are of different sizes.
"""

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from engines.images.form import ImageForm
from engines.memory.block_pool import BlockPool
from engines.memory.packed_pool import block_pool
from engines.memory.pages import PagePool
from engines.scheduling.batch import Batch, Chunk, ChunkResult, StepResult
from engines.speculation.drafting import write_drafts
from engines.speculation.verification import compute_verified
from mesh.wire.images import PlacedImage
from mesh.wire.requests import POOLED_TOKEN
from mesh.wire.transfers import KVShape

SERVICE, OTHER = "tiny", "other"


SLOTS = {SERVICE: 1, OTHER: 3}  # blocks in a page


BLOCK_SIZE = 4


STEP_S = 0.01


GATEWAY = "gateway"


SHAPE = KVShape(1, 1, 1, BLOCK_SIZE, "float32")


GREY = (0.5, 0.5, 0.5)


SIGHT = ImageForm(3, 1, 2, 2, True, 1, 1 / 255, GREY, GREY)  # a tile of one pixel is two tokens


def absorb(state: bytes, token: int) -> bytes:
    return blake2b(state + token.to_bytes(4, "little"), digest_size=8).digest()


def token_after(state: bytes, num_tokens: int = 1000) -> int:
    """Of a vocabulary of so many tokens."""
    return 10 + int.from_bytes(state[:4], "little") % num_tokens


def sight_of(image: PlacedImage) -> int:
    """What a model sees of an image."""
    return zlib.crc32(image.pixels)


def continuation(
    prompt: list[int],
    num_tokens: int,
    adapter: str = "",
    images: Sequence[PlacedImage] = (),
    vocabulary: int = 1000,
) -> list[int]:
    """What an undisturbed run generates, with the adapter of that key if it has one."""
    state, generated = adapter.encode(), []
    shown = {image.start: image for image in images}
    for position, token in enumerate(prompt):
        state = absorb(state, token)
        if position in shown:
            state = absorb(state, sight_of(shown[position]))
    for _ in range(num_tokens):
        generated.append(token_after(state, vocabulary))
        state = absorb(state, generated[-1])
    return generated


class VirtualMemory:
    """What is in each block, and its generation. A service that writes to a page overwrites what others had there."""

    def __init__(
        self, num_pages: int, slots: Mapping[str, int] = SLOTS, quotas: Mapping[str, float] | None = None
    ) -> None:
        self.pages = PagePool(num_pages)
        self.slots = slots
        self.quotas = quotas or {}
        self.generations: dict[tuple[str, int], int] = defaultdict(int)
        self._content: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        self._writers: dict[int, str] = {}  # of pages

    def write(self, service: str, block: int, offset: int, state: bytes) -> None:
        page = block // self.slots[service]
        if self._writers.get(page, service) != service:
            for gone in self.blocks_in(page, self._writers[page]):
                self._content.pop(gone, None)
        self._writers[page] = service
        self._content[service, block][offset] = state

    def read(self, service: str, block: int) -> dict[int, bytes]:
        """By offset."""
        return self._content[service, block]

    def blocks_in(self, page: int, service: str) -> list[tuple[str, int]]:
        slots = self.slots[service]
        return [(service, block) for block in range(page * slots, (page + 1) * slots)]

    def pool(self, service: str) -> BlockPool:
        quota = self.quotas.get(service)
        return block_pool(self.pages, BLOCK_SIZE, self.slots[service], VirtualContent(service, self), quota=quota)


@dataclass
class VirtualContent:
    """Implements `engines.memory.block_pool.Content` for one service."""

    service: str
    memory: VirtualMemory

    def take_page(self, page: int) -> None:
        for service in self.memory.slots:
            for block in self.memory.blocks_in(page, service):
                self.memory.generations[block] += 1

    def reuse(self, block: int) -> None:
        self.memory.generations[self.service, block] += 1


class HashingExecutor:
    def __init__(self, memory: VirtualMemory, vocabulary: int = 1000) -> None:
        self.adapters: set[str] = set()  # keys
        self._memory = memory
        self._vocabulary = vocabulary

    def execute(self, batch: Batch) -> StepResult:
        drafted = write_drafts(batch.chunks, lambda service: partial(self._guess, service), lambda: 0.0)
        return StepResult(compute_verified(drafted.chunks, partial(self._compute, batch.service)), STEP_S)

    def _guess(self, service: str, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        """A draft model is wrong about every fifth token."""
        results = self._compute(service, chunks)
        is_wrong = [chunk.draw is not None and (chunk.start + len(chunk.request)) % 5 == 0 for chunk in chunks]
        return [
            ChunkResult((one.token or 0) + 1) if wrong else one for one, wrong in zip(results, is_wrong, strict=True)
        ]

    def _compute(self, service: str, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        results = []
        for chunk in chunks:
            assert not chunk.adapter or chunk.adapter in self.adapters, "an adapter that is not there is computed"
            state = chunk.adapter.encode()
            state = self._at(service, chunk.blocks, chunk.start - 1) if chunk.start else state
            shown = {image.start: image for image in chunk.images}
            for position, token in enumerate(chunk.tokens, chunk.start):
                state = absorb(state, token)
                if position in shown:
                    state = absorb(state, sight_of(shown[position]))
                index, offset = divmod(position, BLOCK_SIZE)
                self._memory.write(service, chunk.blocks[index], offset, state)
            if chunk.draw is not None and chunk.draw.pooling is not None:
                results.append(ChunkResult(POOLED_TOKEN, vector=state))
            else:
                results.append(ChunkResult(None if chunk.draw is None else token_after(state, self._vocabulary)))
        return results

    def _at(self, service: str, blocks: Sequence[int], position: int) -> bytes:
        index, offset = divmod(position, BLOCK_SIZE)
        return self._memory.read(service, blocks[index])[offset]
