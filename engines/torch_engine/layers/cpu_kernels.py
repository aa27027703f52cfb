"""Kernels of our own for processors, where they were compiled (`csrc`): a laptop's memory is what decodes wait for.

A product with one row reads each weight once. Weights that stay in their 4 or 8 bits are read several times as fast as
the float32 they stand for, and they stand for exactly that; no library computes such products in float32. Attention of
decodes reads KV where it lies, and no copy of it is made. Without a compiler at the time of installation torch computes
the same from float32.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from engines.models.files.block_kinds import Form
from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.quantised_weights import Codes, runs, stacked

INTERFACE = 4  # of the functions that are called here, as csrc/module.c has it

try:
    from engines.torch_engine import _kernels
except ImportError:
    _kernels = None  # type: ignore[assignment]
if getattr(_kernels, "INTERFACE", None) != INTERFACE:
    _kernels = None  # type: ignore[assignment]  # compiled before what is around it was changed

FLOAT_BYTES = 4
TILE = 64  # outputs that are packed together
LANES = 16  # the longest registers
CODED = ("float32", "bfloat16", "int8")
KV_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.uint8: 2}  # as csrc/kernels.h numbers them


def kernel_sets() -> list[str]:
    """Names of those that this processor runs, the fastest first; none if they were not compiled."""
    return [] if _kernels is None else _kernels.names()


KERNELS = next(iter(kernel_sets()), "")  # that engines use

Call = tuple[str | Callable[..., object], tuple[Any, ...]]  # of a kernel, by its name, or of anything else
_noted = threading.local()  # ``calls``: where this thread's calls of kernels are noted


@contextmanager
def noting(calls: list[Call]) -> Iterator[None]:
    """Note this thread's calls of kernels meanwhile."""
    _noted.calls = calls
    try:
        yield
    finally:
        del _noted.calls


def call_all(calls: Sequence[Call]) -> None:
    """Make calls again, of kernels over the same addresses."""
    kernels = _kernels
    for function, arguments in calls:
        if isinstance(function, str):
            getattr(kernels, function)(*arguments)
        else:
            function(*arguments)


def _call(kernel: str, *arguments: Any) -> None:
    getattr(_kernels, kernel)(*arguments)
    if (calls := getattr(_noted, "calls", None)) is not None:
        calls.append((kernel, arguments))


def keeps_codes(dtype: str, device: str) -> bool:
    """Return whether products are computed by `CodeLinear`, if it takes their weights: in int8 and bfloat16 of all
    weights, in float32 of those that come in blocks.
    """
    return bool(KERNELS) and dtype in CODED and device == "cpu"


def packs(outs: Iterable[tuple[Form, int]]) -> bool:
    """Return whether `CodeLinear` takes weights of so many outputs, one after the other."""
    return all(sum(sizes) % TILE == 0 for _, sizes in runs(outs))


def packed_bytes(outs: Iterable[tuple[Form, int]], num_in: int) -> int:
    """Return what it holds of them."""
    return sum([_kernels.packed_bytes(form, sum(sizes), num_in) for form, sizes in runs(outs)])


class CodeLinear:
    """A product with weights in codes, or in bfloat16. ``x @ weight.T + bias`` in float32 of weights one after the
    other that `packs` takes.

    With ``rounds``, 32 inputs at a time are rounded to 8 bits first, the largest of them to 127, and products within a
    group are those of whole numbers. A row's result is the same whatever other rows there are. ``kernels``: of
    `kernel_sets`.
    """

    def __init__(
        self, parts: Sequence[Codes], bias: Tensor | None = None, *, rounds: bool = False, kernels: str = KERNELS
    ) -> None:
        self._runs = [_Run(stacked(run), rounds, kernels) for _, run in runs((part.form, part) for part in parts)]
        self._outs = sum([run.num_out for run in self._runs])
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty((x.shape[0], self._outs))  # the length of a tensor takes longer to ask for
        if self._bias is not None:
            out.copy_(self._bias)
        self._compute(x, out, adds=self._bias is not None)
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        if self._bias is not None:
            residual.add_(self._bias)
        self._compute(x, residual, adds=True)

    def _compute(self, x: Tensor, out: Tensor, adds: bool) -> None:
        x, at, stride = x.contiguous(), out.data_ptr(), out.stride(0)
        for run in self._runs:
            run.compute(x, at, stride, adds)
            at += run.num_out * FLOAT_BYTES


class _Run:
    """Weights of one form, packed."""

    def __init__(self, weight: Codes, rounds: bool, kernels: str) -> None:
        self._rounds = rounds
        self.num_out, self._ins = weight.codes.shape
        self._form = weight.form
        self._kernels = kernels
        self._packed = torch.empty(_kernels.packed_bytes(weight.form, self.num_out, self._ins), dtype=torch.uint8)
        self._address = self._packed.data_ptr()
        codes, scales = weight.codes.contiguous(), weight.scales.contiguous()
        minima = scales if weight.minima is None else weight.minima.contiguous()  # not read where there are none
        _kernels.pack(
            weight.form,
            codes.data_ptr(),
            scales.data_ptr(),
            minima.data_ptr(),
            self._address,
            self.num_out,
            self._ins,
        )

    def compute(self, x: Tensor, out: int, stride: int, adds: bool) -> None:
        """To the address ``out``, whose rows are ``stride`` floats apart."""
        _call(
            "product",
            self._kernels,
            self._form,
            self._address,
            x.data_ptr(),
            out,
            stride,
            x.shape[0],
            self.num_out,
            self._ins,
            self._rounds,
            adds,
            torch.get_num_threads(),
        )


def attends(dtype: torch.dtype, head_dim: int) -> bool:
    """Return whether `attend_in_place` takes queries of that dtype with heads of that size."""
    return bool(KERNELS) and dtype == torch.float32 and head_dim % LANES == 0


def attends_chunks(dtype: torch.dtype, head_dim: int) -> bool:
    """The same of `attend_chunk_in_place`."""
    return attends(dtype, head_dim) and head_dim % TILE == 0


def attend_in_place(
    queries: Tensor,
    rows: Tensor,
    tables: Tensor,
    lengths: Tensor,
    num_kv_heads: int,
    kind: AttentionKind,
    kernels: str = KERNELS,
) -> Tensor:
    """Attention of one query a request [requests, heads, head_dim] to its ``lengths`` [requests] tokens of KV.

    ``rows`` [*, block_size, width]: those of a layer (`KVPool.rows`). ``tables`` [requests, blocks]: the row at
    which each block begins; int64, as the lengths. Returns [requests, heads * head_dim].
    """
    num_requests, num_heads, head_dim = queries.shape
    out = torch.empty((num_requests, num_heads * head_dim))
    _call(
        "attend",
        kernels,
        queries.data_ptr(),
        queries.stride(0),
        KV_KINDS[rows.dtype],
        rows.data_ptr(),
        tables.data_ptr(),
        tables.shape[1],
        lengths.data_ptr(),
        num_requests,
        num_kv_heads,
        num_heads // num_kv_heads,
        rows.shape[1],
        head_dim,
        kind.scale,
        kind.window or 0,
        kind.softcap or 0.0,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def attend_chunk_in_place(
    queries: Tensor,
    rows: Tensor,
    table: Tensor,
    num_before: int,
    num_kv_heads: int,
    kind: AttentionKind,
    kernels: str = KERNELS,
) -> Tensor:
    """Causal attention of consecutive tokens of one request [tokens, heads, head_dim] after ``num_before`` others.

    ``rows`` and ``table`` [blocks] as for `attend_in_place`. Returns [tokens, heads * head_dim].
    """
    num_tokens, num_heads, head_dim = queries.shape
    out = torch.empty((num_tokens, num_heads * head_dim))
    _call(
        "attend_chunk",
        kernels,
        queries.data_ptr(),
        queries.stride(0),
        KV_KINDS[rows.dtype],
        rows.data_ptr(),
        table.data_ptr(),
        num_before,
        num_tokens,
        num_kv_heads,
        num_heads // num_kv_heads,
        rows.shape[1],
        head_dim,
        kind.scale,
        kind.window or 0,
        kind.softcap or 0.0,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def stores(kv: Tensor) -> bool:
    """Return whether `store` takes such KV."""
    return bool(KERNELS) and kv.dtype == torch.float32 and kv.device.type == "cpu" and kv.shape[-1] % LANES == 0


def store(kv: Tensor, tokens: Tensor, index: Tensor, kernels: str = KERNELS) -> None:
    """Store ``kv`` [n, heads, head_dim] in the rows of ``tokens`` [*, width] that ``index`` [n * heads] names, in
    whatever dtype these are.
    """
    num, heads, dim = kv.shape
    _call(
        "store",
        kernels,
        KV_KINDS[tokens.dtype],
        kv.data_ptr(),
        kv.stride(0),
        index.data_ptr(),
        num,
        heads,
        dim,
        tokens.data_ptr(),
        torch.get_num_threads(),
    )


def computes_rows(x: Tensor) -> bool:
    """Return whether `normalised` and `turn` take such a tensor."""
    return bool(KERNELS) and x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[-1] % LANES == 0


def normalised(x: Tensor, weight: Tensor, epsilon: float, kernels: str = KERNELS) -> Tensor:
    """Normalise by the root mean square. ``x / sqrt(mean(x ** 2) + epsilon) * weight`` over the last dimension of ``x``
    [rows, size], for a weight [size].
    """
    out = torch.empty(x.shape)
    _call(
        "normalise",
        kernels,
        x.contiguous().data_ptr(),
        weight.data_ptr(),
        epsilon,
        out.data_ptr(),
        x.shape[0],
        x.shape[1],
        torch.get_num_threads(),
    )
    return out


def turn(heads: Tensor, angles: Tensor, kernels: str = KERNELS) -> None:
    """Multiply the first components of ``heads`` [rows, heads, head_dim], pairs side by side as complex numbers, by
    ``angles`` [rows, 1, pairs], in place.
    """
    num_rows, num_heads, head_dim = heads.shape
    stride, to_next, _ = heads.stride()
    assert to_next == head_dim, "heads lie one after the other"
    num_dims, threads = 2 * angles.shape[-1], torch.get_num_threads()
    at, by = heads.data_ptr(), angles.data_ptr()
    _call("rotate", kernels, at, stride, num_rows, num_heads, head_dim, num_dims, by, threads)


def gates(x: Tensor) -> bool:
    """Return whether `gated` takes such a tensor."""
    return bool(KERNELS) and x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[-1] % (2 * LANES) == 0


def gated(x: Tensor, kernels: str = KERNELS) -> Tensor:
    """Compute a gated activation. ``silu(gate) * up`` of ``x`` [rows, 2 * n], gates before ups: [rows, n] (SwiGLU,
    Shazeer, 2020).
    """
    num_rows, width = x.shape
    out = torch.empty((num_rows, width // 2))
    _call("gate", kernels, x.data_ptr(), out.data_ptr(), num_rows, width // 2, torch.get_num_threads())
    return out
