"""Weights that stay in their blocks of codes (`engines.models.block_kinds`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.models.block_kinds import GROUP, Kind


@dataclass(frozen=True, slots=True)
class Blocks:
    """A weight ``[out, in]``: ``rows`` [out, in / 32 * bytes of a block], uint8."""

    kind: Kind
    rows: Tensor

    @property
    def num_out(self) -> int:
        return len(self.rows)

    @property
    def num_in(self) -> int:
        return self.rows.shape[1] // self.kind.block_bytes * GROUP

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Codes [out, blocks, bytes] as GGUF orders them; scales and minima [out, blocks] in float32."""
        blocks = self.rows.view(self.num_out, -1, self.kind.block_bytes)
        head = blocks[..., : self.kind.head_bytes].contiguous().view(torch.float16).float()
        scales = head[..., 0].contiguous()
        minima = head[..., 1].contiguous() if head.shape[-1] > 1 else scales * -float(self.kind.offset)
        return blocks[..., self.kind.head_bytes :].contiguous(), scales, minima


def stacked(parts: Sequence[Blocks]) -> Blocks | None:
    """The weights one after the other, if they are of one kind."""
    if any(part.kind != parts[0].kind for part in parts):
        return None
    return Blocks(parts[0].kind, torch.cat([part.rows for part in parts]))
