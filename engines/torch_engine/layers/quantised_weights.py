"""Weights that stay in their blocks of codes (`engines.models.files.block_kinds`), and what their bytes say.

Bytes are laid out as llama.cpp's ggml-common.h has them, and scales and minima as its `dequantize_row` functions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from engines.models.files.block_kinds import Form, Kind

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Codes:
    """Weights in codes. ``codes`` [out, in], uint8 (of signed ones, as they lie in memory); ``scales`` and ``minima``
    [out, groups].

    ``minima`` are None where the form has none. Of `Form.HALVES`, ``codes`` are the weights in bfloat16, and there are
    no groups with scales.
    """

    form: Form
    codes: Tensor
    scales: Tensor
    minima: Tensor | None

    @property
    def num_out(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class WeightBlocks:
    """A weight ``[out, in]``: ``rows`` [out, in / weights of a block * its bytes], uint8."""

    kind: Kind
    rows: Tensor

    @property
    def num_out(self) -> int:
        return len(self.rows)

    @property
    def num_in(self) -> int:
        return self.rows.shape[1] // self.kind.num_bytes * self.kind.num_weights

    def codes(self) -> Codes:
        """Return what computing needs of it."""
        codes, scales, minima = _READERS[self.kind.name](self.rows.reshape(-1, self.kind.num_bytes))
        out = self.num_out
        minima = None if minima is None else minima.reshape(out, -1)
        return Codes(self.kind.form, codes.reshape(out, -1), scales.reshape(out, -1), minima)


def coded(weight: Tensor) -> Codes:
    """A weight ``[out, in]`` in 8 bits, the largest of 32 to 127; a number of inputs that 32 divides."""
    groups = weight.float().reshape(len(weight), -1, Form.BYTES.group)
    scales = groups.abs().amax(dim=2) / 127
    codes = (groups / scales.clamp(min=1e-30)[..., None]).round().to(torch.int8)
    return Codes(Form.BYTES, codes.view(torch.uint8).flatten(1), scales, None)


def halved(weight: Tensor) -> Codes:
    """A weight ``[out, in]`` in bfloat16; a number of inputs that 32 divides."""
    return Codes(Form.HALVES, weight.bfloat16(), torch.empty(len(weight), 0), None)


def runs(parts: Iterable[tuple[Form, Item]]) -> Iterator[tuple[Form, list[Item]]]:
    """Join those that follow each other and are of one form."""
    for form, run in groupby(parts, lambda part: part[0]):
        yield form, [item for _, item in run]


def stacked(parts: Sequence[Codes]) -> Codes:
    """One after the other, of one form."""
    minima = [part.minima for part in parts if part.minima is not None]
    return Codes(
        parts[0].form,
        torch.cat([part.codes for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat(minima) if minima else None,
    )


# --- what the bytes of blocks [n, bytes] say: codes [n, weights], scales and minima [n, groups] -----------------------

Read = tuple[Tensor, Tensor, Tensor | None]


def _halves(blocks: Tensor, start: int, end: int) -> list[Tensor]:
    """The float16 numbers of those bytes, each [n, 1] in float32."""
    numbers = blocks[:, start:end].contiguous().view(torch.float16).float()
    return [numbers[:, index : index + 1] for index in range(numbers.shape[1])]


def _nibbles(bytes_: Tensor) -> Tensor:
    """The low ones of [..., bytes], then the high ones."""
    return torch.cat([bytes_ & 15, bytes_ >> 4], dim=-1)


def _fifth_bits(bytes_: Tensor) -> Tensor:
    """16 times the bits [n, 32] of four bytes."""
    bits = torch.arange(8, dtype=torch.uint8)
    return ((bytes_[..., None] >> bits) & 1).flatten(1) << 4


def _q4_0(blocks: Tensor) -> Read:
    [scale] = _halves(blocks, 0, 2)
    return _nibbles(blocks[:, 2:]), scale, scale * -8.0


def _q4_1(blocks: Tensor) -> Read:
    scale, minimum = _halves(blocks, 0, 4)
    return _nibbles(blocks[:, 4:]), scale, minimum


def _q5_0(blocks: Tensor) -> Read:
    [scale] = _halves(blocks, 0, 2)
    return (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])) - 16, scale, None


def _q5_1(blocks: Tensor) -> Read:
    scale, minimum = _halves(blocks, 0, 4)
    return _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8]), scale, minimum


def _q8_0(blocks: Tensor) -> Read:
    [scale] = _halves(blocks, 0, 2)
    return blocks[:, 2:], scale, None


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima [n, 8] of groups that share two factors, each in 6 bits of twelve bytes."""
    scale, minimum = _halves(blocks, 0, 4)
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([low & 63, high & 15 | low >> 6 << 4], dim=1)
    minima = torch.cat([middle & 63, high >> 4 | middle >> 6 << 4], dim=1)
    return scale * scales, -minimum * minima


def _k_nibbles(bytes_: Tensor) -> Tensor:
    """Of 128 bytes: 32 by 32, low ones before high ones."""
    return _nibbles(bytes_.reshape(-1, 4, 32)).flatten(1)


def _q4_k(blocks: Tensor) -> Read:
    return _k_nibbles(blocks[:, 16:]), *_k_scales(blocks)


def _q5_k(blocks: Tensor) -> Read:
    groups = torch.arange(8, dtype=torch.uint8)[:, None]
    fifth = ((blocks[:, None, 16:48] >> groups) & 1).flatten(1) << 4
    return _k_nibbles(blocks[:, 48:]) | fifth, *_k_scales(blocks)


def _q6_k(blocks: Tensor) -> Read:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64))
    quarters = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> quarters & 3).flatten(2) << 4
    [scale] = _halves(blocks, 208, 210)
    scales = blocks[:, 192:208].view(torch.int8)
    return ((low | high) - 32).flatten(1), scale * scales, None


_READERS: dict[str, Callable[[Tensor], Read]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
