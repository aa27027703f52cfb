"""Models that make one vector of each prompt: encoders, and decoders whose last hidden states are pooled."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from engines.models.files.model_config import ModelConfig
from engines.models.files.pooling_config import PoolingConfig, PoolingMode
from engines.scheduling.batch import Chunk, ChunkResult
from engines.torch_engine.decoder import Decoder
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.paged_attention import PagedAttention
from engines.torch_engine.pooled.encoder import Encoder, Text
from engines.torch_engine.pooled.pooling import Pooler, to_bytes
from engines.torch_engine.sampling.sampler import NOT_FINITE
from engines.torch_engine.tensors import ReadTensor, read_tensor
from mesh.wire.requests import POOLED_TOKEN

NOTHING = ChunkResult()


def computes_whole(config: ModelConfig, pooling: PoolingConfig | None) -> bool:
    """Return whether prompts must be computed in one step: what comes first sees what comes last, or all hidden states
    are wanted. ``pooling``: None: no vectors are.
    """
    return config.encoder is not None or (pooling is not None and pooling.mode is not PoolingMode.LAST)


class PooledEncoder:
    """An encoder. Its prompts leave no KV: of ``pool`` they only hold blocks. ``pooling``: None: texts are scored."""

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        dtype: str,
        pool: KVPool,
        pooling: PoolingConfig | None,
        read: ReadTensor = read_tensor,
    ) -> None:
        self.pool = pool
        self._encoder = Encoder(folder, config, dtype, pool.device, read)
        self._pooler = None if pooling is None else Pooler(pooling.mode, pooling.normalises)

    def use(self, pool: KVPool) -> None:
        self.pool = pool

    def forget_graphs(self) -> None:
        """There are none."""

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        """Compute whole prompts."""
        if not chunks:
            return []
        texts = [Text(chunk.tokens, _first_tokens(chunk)) for chunk in chunks]
        lengths = [len(text.tokens) for text in texts]
        hidden = self._encoder.forward(texts)
        if self._pooler is not None:
            return _results(self._pooler(hidden, lengths))
        return _results(self._encoder.scores(hidden, lengths))


class PooledDecoder:
    """A decoder that makes vectors. Prompts whose last token is pooled may come in chunks, others come whole."""

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        dtype: str,
        pool: KVPool,
        pooling: PoolingConfig,
        paged: PagedAttention | None = None,
        read: ReadTensor = read_tensor,
    ) -> None:
        self.pool = pool
        self._decoder = Decoder(folder, config, dtype, pool, paged, generates=False, read=read)
        self._pooler = Pooler(pooling.mode, pooling.normalises)

    def use(self, pool: KVPool) -> None:
        self.pool = pool
        self._decoder.use(pool)

    def forget_graphs(self) -> None:
        """There are none."""

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        if not chunks:
            return []
        layout = self._decoder.plan(chunks)
        ordered = [chunks[i] for i in layout.order]
        rows, lengths = self._needed(ordered)
        hidden = self._decoder.forward(ordered, layout, torch.tensor(rows, dtype=torch.long, device=self.pool.device))
        pooled = iter(_results(self._pooler(hidden, lengths)) if lengths else ())
        results = [NOTHING] * len(chunks)
        for i, chunk in zip(layout.order, ordered, strict=True):
            results[i] = NOTHING if chunk.draw is None else next(pooled)
        return results

    def _needed(self, chunks: Sequence[Chunk]) -> tuple[list[int], list[int]]:
        """Rows of the batch that are pooled, and how many of each prompt that ends in it."""
        rows, lengths, end = list[int](), list[int](), 0
        for chunk in chunks:
            first, end = end, end + len(chunk.tokens)
            if chunk.draw is None:
                continue
            first = end - 1 if self._pooler.mode is PoolingMode.LAST else first
            rows += range(first, end)
            lengths.append(end - first)
        return rows, lengths


def _first_tokens(chunk: Chunk) -> int:
    pooling = None if chunk.draw is None else chunk.draw.pooling
    return 0 if pooling is None else pooling.first_tokens


def _results(vectors: Tensor) -> list[ChunkResult]:
    """One a row. What is not a number fails its request alone."""
    sums = vectors.float().sum(dim=-1).tolist()
    return [
        ChunkResult(POOLED_TOKEN, vector=vector) if math.isfinite(total) else ChunkResult(unsampled=NOT_FINITE)
        for vector, total in zip(to_bytes(vectors), sums, strict=True)
    ]
