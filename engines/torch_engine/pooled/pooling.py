"""Makes the vectors of texts out of their hidden states: what follows the model where a service embeds or scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engines.models.files.pooling_config import PoolingMode


@dataclass(frozen=True, slots=True)
class Pooler:
    """Makes one vector of each text. ``mode``: of which of its hidden states."""

    mode: PoolingMode
    normalises: bool

    def __call__(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        """Pool texts that lie one after the other. [tokens, hidden] to [texts, hidden], in float32."""
        pooled = self._pool(hidden, torch.tensor(lengths, device=hidden.device)).float()
        return functional.normalize(pooled, dim=-1) if self.normalises else pooled

    def _pool(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        ends = lengths.cumsum(0)
        if self.mode is PoolingMode.CLS:
            return hidden[ends - lengths]
        if self.mode is PoolingMode.LAST:
            return hidden[ends - 1]
        owners = torch.repeat_interleave(torch.arange(len(lengths), device=hidden.device), lengths)
        sums = torch.zeros(len(lengths), hidden.shape[-1], device=hidden.device)
        return sums.index_add_(0, owners, hidden.float()) / lengths[:, None]


def to_bytes(vectors: Tensor) -> list[bytes]:
    """One vector a row, each as float32 in the order of small processors: what `Delta.vector` has."""
    rows = vectors.float().cpu().contiguous().numpy().astype("<f4", copy=False)
    return [row.tobytes() for row in rows]
