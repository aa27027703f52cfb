"""Times of a transformer's iterations composed from measured kernels (AIConfigurator's operator tables).

An iteration is, for each layer, four matrix products, one attention call, element-wise kernels and with several devices
two all-reduces; then the language-model head. CPU time and sampling are not in it.
"""

import csv
import gzip
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path

Curve = Sequence[tuple[float, float]]  # (size, ms), by size

PEAK_BYTES_PER_S = {"a100_sxm": 2.039e12, "h100_sxm": 3.35e12, "h200_sxm": 4.8e12}  # NVIDIA's data sheets
ELEMENT_WISE_FRACTION = 0.6  # of the peak that norms, rotary embeddings and activations reach in Vidur's A100 medians
BYTES_16_BIT = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the kernels of a dense transformer with grouped queries and a gated MLP."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int


class Kernels:
    """The tables of one system, interpolated."""

    def __init__(self, folder: Path, system: str) -> None:
        self._gemms = _gemms(folder, system)
        self._prefill = _attention(folder / "context_attention_bf16_ms.csv.gz", system, "isl")
        self._decode = _attention(folder / "generation_attention_bf16_ms.csv.gz", system, "context")
        self._all_reduces = _all_reduces(folder, system)
        self._element_wise_bytes_per_s = ELEMENT_WISE_FRACTION * PEAK_BYTES_PER_S[system]

    def gemm_ms(self, m: int, n: int, k: int) -> float:
        """[m, k] by [k, n]. Between measured n and k, the time for each weight is interpolated in their logarithms."""
        sizes = sorted({n_ for n_, _ in self._gemms})
        corners = (
            (weight_n * weight_k, a, b) for a, weight_n in _around(sizes, n) for b, weight_k in _around(sizes, k)
        )
        return sum(weight * _line(self._gemms[a, b], m) / (a * b) * (n * k) for weight, a, b in corners if weight)

    def prefill_attention_ms(self, heads: int, kv_heads: int, num_tokens: int) -> float:
        """Time of one prompt; quadratic beyond the longest that was measured."""
        pair, scale = _closest_pair(self._prefill, heads, kv_heads)
        curve = self._prefill[pair][1]
        longest = curve[-1][0]
        return scale * _line(curve, min(num_tokens, longest)) * max(1.0, num_tokens / longest) ** 2

    def decode_attention_ms(self, heads: int, kv_heads: int, num_requests: int, context: int) -> float:
        """One KV head more counts as a request more: kernels spread both over the device alike."""
        pair, scale = _closest_pair(self._decode, heads, kv_heads)
        batches = self._decode[pair]
        reach = min(context, max(curve[-1][0] for curve in batches.values()))
        points = [(float(size), _line(curve, context)) for size, curve in batches.items() if curve[-1][0] >= reach]
        return _line(points, num_requests * scale)

    def element_wise_ms(self, num_bytes: float) -> float:
        return 1000 * num_bytes / self._element_wise_bytes_per_s

    def all_reduce_ms(self, num_devices: int, num_elements: int) -> float:
        return _line(self._all_reduces[num_devices], num_elements) if num_devices > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Iterations:
    """Times of one model on ``num_devices`` in tensor parallelism."""

    kernels: Kernels
    shape: Shape
    num_devices: int

    def prefill_s(self, num_tokens: int, num_before: int = 0) -> float:
        """A chunk attends to what a whole prompt does less what its beginning did, and reads the beginning's KV."""
        attention_ms = self._prefill_attention_ms(num_before + num_tokens)
        if num_before:
            reread_ms = self._decode_attention_ms(1, 2 * num_before) - self._decode_attention_ms(1, num_before)
            attention_ms += reread_ms - self._prefill_attention_ms(num_before)
        return (self._products_ms(num_tokens, 1) + attention_ms) / 1000

    def decode_s(self, num_requests: int, context: int) -> float:
        """Time of a step of requests with ``context`` tokens each."""
        return (self._products_ms(num_requests, num_requests) + self._decode_attention_ms(num_requests, context)) / 1000

    def mixed_s(self, num_tokens: int, num_before: int, num_requests: int, context: int) -> float:
        """A chunk of a prompt and decodes in one iteration: products over the rows of both, attention one by one."""
        products_ms = self._products_ms(num_tokens + num_requests, 1 + num_requests) - self._products_ms(num_tokens, 1)
        return (
            self.prefill_s(num_tokens, num_before)
            + (products_ms + self._decode_attention_ms(num_requests, context)) / 1000
        )

    def _products_ms(self, rows: int, num_drawn: int) -> float:
        shape, devices, kernels = self.shape, self.num_devices, self.kernels
        heads, kv_heads = self._heads
        layer_ms = (
            kernels.gemm_ms(rows, (heads + 2 * kv_heads) * shape.head_dim, shape.hidden_size)
            + kernels.gemm_ms(rows, shape.hidden_size, heads * shape.head_dim)
            + kernels.gemm_ms(rows, 2 * shape.intermediate_size // devices, shape.hidden_size)
            + kernels.gemm_ms(rows, shape.hidden_size, shape.intermediate_size // devices)
            + 2 * kernels.all_reduce_ms(devices, rows * shape.hidden_size)
            + kernels.element_wise_ms(rows * self._element_wise_bytes_per_token)
        )
        head_ms = kernels.gemm_ms(num_drawn, shape.vocab_size // devices, shape.hidden_size)
        return shape.num_layers * layer_ms + head_ms

    @property
    def _element_wise_bytes_per_token(self) -> float:
        """Bytes of a layer: two norms with their residuals, the rotary embedding and the gated activation."""
        heads, kv_heads = self._heads
        norms, rotary = 8 * self.shape.hidden_size, 2 * (heads + kv_heads) * self.shape.head_dim
        return BYTES_16_BIT * (norms + rotary + 3 * self.shape.intermediate_size / self.num_devices)

    def _prefill_attention_ms(self, num_tokens: int) -> float:
        return self.shape.num_layers * self.kernels.prefill_attention_ms(*self._heads, num_tokens)

    def _decode_attention_ms(self, num_requests: int, context: int) -> float:
        return self.shape.num_layers * self.kernels.decode_attention_ms(*self._heads, num_requests, context)

    @property
    def _heads(self) -> tuple[int, int]:
        """Query and KV heads of a device; a KV head that cannot be split is on each."""
        return self.shape.num_heads // self.num_devices, max(1, self.shape.num_kv_heads // self.num_devices)


def _line(curve: Curve, size: float) -> float:
    """Between the points; beyond them in proportion to the last piece, before them level."""
    index = bisect_left(curve, (size,))
    if index == 0:
        return curve[0][1]
    if index == len(curve):
        if len(curve) == 1:
            return curve[0][1]
        index -= 1
    (before, before_ms), (after, after_ms) = curve[index - 1], curve[index]
    return before_ms + (after_ms - before_ms) * (size - before) / (after - before)


def _around(sizes: Sequence[int], size: int) -> list[tuple[int, float]]:
    """The two sizes around, with weights."""
    index = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
    low, high = sizes[index - 1], sizes[index]
    weight = min(max(log2(size / low) / log2(high / low), 0.0), 1.0)
    return [(low, 1.0 - weight), (high, weight)]


def _closest_pair(tables: Mapping[tuple[int, int], object], heads: int, kv_heads: int) -> tuple[tuple[int, int], float]:
    """The measured (heads, KV heads) of the same ratio that is nearest, and how many times as many are wanted."""
    alike = [pair for pair in tables if pair[0] * kv_heads == pair[1] * heads]
    pair = min(alike, key=lambda pair: abs(log2(heads / pair[0])))
    return pair, heads / pair[0]


def _rows(file: Path, system: str) -> list[dict[str, str]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return [row for row in csv.DictReader(lines) if row["system"] == system]


def _gemms(folder: Path, system: str) -> dict[tuple[int, int], Curve]:
    curves: dict[tuple[int, int], dict[float, float]] = defaultdict(dict)
    for row in _rows(folder / "gemm_bf16_ms.csv.gz", system):
        curves[int(row["n"]), int(row["k"])][float(row["m"])] = float(row["ms"])
    return {pair: sorted(curve.items()) for pair, curve in curves.items()}


def _attention(file: Path, system: str, length: str) -> dict[tuple[int, int], dict[int, Curve]]:
    """By (heads, KV heads) and batch size, over the length."""
    curves: dict[tuple[int, int], dict[int, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in _rows(file, system):
        pair = int(row["heads"]), int(row["kv_heads"])
        curves[pair][int(row["batch"])][float(row[length])] = float(row["ms"])
    return {
        pair: {size: sorted(curve.items()) for size, curve in sorted(batches.items())}
        for pair, batches in curves.items()
    }


def _all_reduces(folder: Path, system: str) -> dict[int, Curve]:
    curves: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in _rows(folder / "allreduce_ms.csv", system):
        curves[int(row["num_gpus"])].append((float(row["elements_bf16"]), float(row["ms"])))
    return {devices: sorted(curve) for devices, curve in curves.items()}
