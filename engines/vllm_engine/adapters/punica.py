"""Products of LoRA adapters on CPUs, for vLLM: the rows of an adapter together, and those of none not at all.

vLLM's own for CPUs copy an adapter's factors for every row, and compute rows without an adapter with whatever is in the
last place (vllm-project/vllm#48421).
"""

from typing import Any

import torch
from torch import Tensor
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

Rows = slice | Tensor  # of one adapter in a batch


class MeshPunica(PunicaWrapperCPU):  # type: ignore[misc]  # vLLM is not there when types are checked
    """vLLM makes it by its name, and tells it of each step's rows before the step."""

    _groups: list[tuple[int, Rows]]  # places, and the rows that are theirs

    def update_metadata(self, *arguments: Any, **options: Any) -> None:
        super().update_metadata(*arguments, **options)
        self._groups = groups_of(self.token_lora_indices)

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **_options: Any,
    ) -> None:
        """Add to ``y`` [rows, outs] in place. ``lora_a_stacked`` and ``lora_b_stacked``: of projections that are
        computed as one, [places, 1, rank, in] and [places, 1, out, rank].
        """
        x, y = x.view(-1, x.shape[-1]), y.view(-1, y.shape[-1])
        for place, rows in self._groups:
            own, outs = x[rows], y[rows]
            start = 0
            for a, b, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                inner = torch.mm(own, a[place, 0].t())
                outs[:, start : start + size].addmm_(inner, b[place, 0].t(), alpha=scale)
                start += size
            if not isinstance(rows, slice):
                y[rows] = outs


def groups_of(places: Tensor) -> list[tuple[int, Rows]]:
    """Return the rows of each place, as a slice where they are neighbours: then nothing is copied. -1: of none."""
    by_place: dict[int, list[int]] = {}
    for row, place in enumerate(places.tolist()):
        if place >= 0:
            by_place.setdefault(place, []).append(row)
    return [(place, _rows(rows)) for place, rows in by_place.items()]


def _rows(rows: list[int]) -> Rows:
    first, end = rows[0], rows[-1] + 1
    return slice(first, end) if end - first == len(rows) else torch.tensor(rows)
