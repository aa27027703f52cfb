"""Costs of a model or a parallelism that nobody measured, from measured ones on the same device.

Aladdin's equation 5, for each coefficient: ``compute / N + all_reduce (N - 1) / N + constant``, where the three are in
proportion to what a model makes a device do. Known profiles give the proportions, by least squares without negative
ones:

- products (the time of n rows, n prompt tokens or n decodes, as far as no attention is in it). Weights read and
  multiplied grow with parameters / N, activations exchanged with layers * hidden size * (N - 1) / N, launches with
  layers;
- attention of prompt tokens to earlier ones: layers * heads * head size / N;
- KV read (for a context token of a decode, for a token before a chunk): KV bytes per token / N.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from engines.costs.linear import requests_s, tokens_s
from mesh.wire.status import DecodeCost, PrefillCost

BYTES_16_BIT = 2


class ModelShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transformer as its publisher describes it. ``weight_bits``: mean of all parameters; ``kv_bits``: of each."""

    num_parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    weight_bits: float = 16
    kv_bits: int = 16

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.kv_bits // 8

    @property
    def weight_bytes(self) -> int:
        return int(self.num_parameters * self.weight_bits / 8)


@dataclass(frozen=True, slots=True)
class Parallel:
    """A model split over ``num_devices`` in tensor parallelism."""

    model: ModelShape
    num_devices: int

    @property
    def products(self) -> tuple[float, float, float]:
        """Compute, all-reduce and launches of a row."""
        model, devices = self.model, self.num_devices
        exchanged = model.num_layers * model.hidden_size * (devices - 1) / devices
        return model.num_parameters / devices, exchanged, model.num_layers

    @property
    def attention(self) -> float:
        return self.model.num_layers * self.model.num_heads * self.model.head_dim / self.num_devices

    @property
    def kv_bytes_per_token(self) -> int:
        """Return those of all devices: more devices than KV heads hold copies."""
        return self.model.kv_bytes_per_token * max(1, self.num_devices // self.model.num_kv_heads)

    @property
    def kv_read(self) -> float:
        return self.kv_bytes_per_token / self.num_devices


@dataclass(frozen=True, slots=True)
class Known:
    """What was measured of a model on some devices."""

    parallel: Parallel
    prefill: PrefillCost
    decode: DecodeCost


def scale_prefill(known: Sequence[Known], wanted: Parallel) -> PrefillCost:
    """Raise `ValueError` if nothing is known. The more different the known ones are, the better."""
    sizes = [size for size, _ in _first(known).prefill.table] or [1, 4096]
    table = _scaled_table(known, wanted, sizes, lambda one, size: tokens_s(one.prefill, size))
    per_token_context_s = _in_proportion(
        [(one.parallel.attention, one.prefill.per_token_context_s) for one in known], wanted.attention
    )
    per_cached_token_s = _in_proportion(
        [(one.parallel.kv_read, one.prefill.per_cached_token_s) for one in known], wanted.kv_read
    )
    fixed_s, per_token_s = _line(table)
    return PrefillCost(fixed_s, per_token_s, per_token_context_s, per_cached_token_s, table=table)


def scale_decode(known: Sequence[Known], wanted: Parallel) -> DecodeCost:
    """Raise `ValueError` if nothing is known."""
    sizes = [size for size, _ in _first(known).decode.table] or [1, 256]
    table = _scaled_table(known, wanted, sizes, lambda one, size: requests_s(one.decode, size))
    per_context_token_s, per_mean_context_token_s = (
        _in_proportion([(one.parallel.kv_read, getattr(one.decode, field)) for one in known], wanted.kv_read)
        for field in ("per_context_token_s", "per_mean_context_token_s")
    )
    fixed_s, per_request_s = _line(table)
    return DecodeCost(fixed_s, per_request_s, per_context_token_s, table, per_mean_context_token_s)


def _first(known: Sequence[Known]) -> Known:
    if not known:
        raise ValueError("nothing is known to scale from")
    return known[0]


def _scaled_table(
    known: Sequence[Known], wanted: Parallel, sizes: Sequence[int], time_s: Callable[[Known, int], float]
) -> tuple[tuple[int, float], ...]:
    """Row by row, and never falling."""
    from engines.costs.fitting import robust_fit  # brings numpy, which profiles that were measured do without

    table: list[tuple[int, float]] = []
    for size in sizes:
        shares = robust_fit([one.parallel.products for one in known], [time_s(one, size) for one in known])
        scaled_s = sum(share * amount for share, amount in zip(shares, wanted.products, strict=True))
        table.append((size, max(scaled_s, table[-1][1] if table else 0.0)))
    return tuple(table)


def _in_proportion(known: Sequence[tuple[float, float]], amount: float) -> float:
    """Seconds for ``amount``, from (amount, seconds) of others."""
    return amount * sum(time_s for _, time_s in known) / sum(amount_ for amount_, _ in known)


def _line(table: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(fixed, per unit) through the first point and the last."""
    (first, first_s), (last, last_s) = table[0], table[-1]
    slope_s = (last_s - first_s) / (last - first) if last > first else 0.0
    return max(0.0, first_s - slope_s * first), slope_s
