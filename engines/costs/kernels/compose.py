"""Composes what a chunk of a prompt and a decode step take of kernels, and fits a preset's costs to it.

A layer is four products, attention, two all-reduces, and element-wise kernels. A layer of a mixture of experts has
three products, one of which chooses experts, and the experts instead of four products. Element-wise kernels take the
time of their bytes at the part of the memory's speed that they reach.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from engines.costs.fitting import DecodeSample, PrefillSample, fit_decode, fit_prefill
from engines.costs.kernels.tables import WIDE, ExpertKernel, Heads, Kernels
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.scaling import ModelShape
from mesh.wire.status import DecodeCost, PrefillCost

ELEMENTS_PART = 0.55  # of the memory's speed on a data sheet, with which older presets of H100 come out
MOST_DECODES, MOST_CONTEXT = 256, 2**19  # requests and tokens in all of a step that is fitted
LEAST_CONTEXT = 64
CALL_MS = 0.038  # of experts that compute next to nothing: Marlin's, 8 of 384 of 4 bits, a token on 32 H100s


@dataclass(frozen=True, slots=True)
class MeasuredExperts:
    """The model that experts were measured of, where they were not of the mixture itself. ``call_ms``: what a call
    takes there that computes next to nothing. Weights are filled up to multiples of ``fill`` on a device: the hidden
    size, and an expert's own.
    """

    hidden_size: int
    intermediate_size: int
    num_experts: int
    num_chosen: int
    call_ms: float
    fill: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Experts in each layer, how many of them compute a token, and their type. ``is_spread``: each device has some of
    them as a whole, instead of a part of each. ``like``: whose experts were measured, if not its own.
    """

    num_experts: int
    num_chosen: int
    kind: str
    is_spread: bool = False
    like: MeasuredExperts | None = None


@dataclass(frozen=True, slots=True)
class KernelModel:
    """A model as its kernels see it. ``products``: the type of its products but the last. ``window``: of the attention
    of every other layer; 0: none has one. ``kv``: the type of its KV.
    """

    shape: ModelShape
    products: str = WIDE
    mixture: Mixture | None = None
    window: int = 0
    kv: str = WIDE


@dataclass(frozen=True, slots=True)
class Composer:
    """A model on ``num_devices`` with these kernels. ``memory_bytes_per_s``: of one device, by its data sheet."""

    kernels: Kernels
    model: KernelModel
    num_devices: int
    memory_bytes_per_s: float

    def prefill_samples(self) -> list[PrefillSample]:
        """Whole prompts, and chunks after others: attention of all tokens less that of the earlier ones."""
        attention = self._prompt_attention_ms()
        samples = [PrefillSample(size, 0, (self._rows_ms(size, 1) + attention[size]) / 1e3) for size in attention]
        for cached in attention:
            for whole in attention:
                if cached >= LEAST_CONTEXT and whole > cached:
                    added_ms = max(0.0, attention[whole] - attention[cached])
                    elapsed_s = (self._rows_ms(whole - cached, 1) + added_ms) / 1e3
                    samples.append(PrefillSample(whole - cached, cached, elapsed_s))
        return samples

    def decode_samples(self) -> list[DecodeSample]:
        attention = self._decode_attention_ms()
        return [
            DecodeSample(number, number * context, (self._rows_ms(number, number) + time_ms) / 1e3)
            for (number, context), time_ms in attention.items()
            if number <= MOST_DECODES and context >= LEAST_CONTEXT and number * context <= MOST_CONTEXT
        ]

    def _rows_ms(self, num_tokens: int, num_sampled: int) -> float:
        """Return the milliseconds of everything but attention."""
        shape, devices = self.model.shape, self.num_devices
        layer_ms = sum(self._layer_ms(num_tokens))
        last_ms = self.kernels.gemm[WIDE](num_sampled, shape.vocab_size / devices, shape.hidden_size)
        return shape.num_layers * layer_ms + last_ms

    def _layer_ms(self, num_tokens: int) -> Iterator[float]:
        shape, devices, gemm = self.model.shape, self.num_devices, self.kernels.gemm[self.model.products]
        hidden, inner = shape.hidden_size, shape.intermediate_size / devices
        heads = shape.num_heads * shape.head_dim / devices
        projected = heads + 2 * self._num_keys * shape.head_dim
        yield gemm(num_tokens, projected, hidden)
        yield gemm(num_tokens, hidden, heads)
        if (mixture := self.model.mixture) is None:
            yield gemm(num_tokens, 2 * inner, hidden)
            yield gemm(num_tokens, hidden, inner)
        else:
            yield self.kernels.gemm[WIDE](num_tokens, mixture.num_experts, hidden)
            yield self._experts_ms(mixture, num_tokens)
            inner = 0.0  # activations are within the experts' kernel
        element_bytes = 2 * (8 * hidden + 3 * inner + 2 * projected)
        yield 1e3 * num_tokens * element_bytes / (ELEMENTS_PART * self.memory_bytes_per_s)
        if devices > 1:
            yield 2 * self.kernels.all_reduce[devices](num_tokens * hidden)

    def _experts_ms(self, mixture: Mixture, num_tokens: int) -> float:
        """Where others' were measured: as for tokens of which an expert gets as many, by the size of all weights."""
        hidden, inner, devices = self.model.shape.hidden_size, self.model.shape.intermediate_size, self.num_devices
        sharing, spread = (1, devices) if mixture.is_spread else (devices, 1)
        if (like := mixture.like) is None:
            sizes = hidden, inner, mixture.num_experts, mixture.num_chosen
            return self.kernels.experts[ExpertKernel(mixture.kind, *sizes, sharing, spread)](num_tokens)
        sizes = like.hidden_size, like.intermediate_size, like.num_experts, like.num_chosen
        measured = self.kernels.experts[ExpertKernel(mixture.kind, *sizes, sharing, spread)]
        per_expert = num_tokens * mixture.num_chosen / mixture.num_experts
        measured_ms = measured(per_expert * like.num_experts / like.num_chosen)
        filled = _filled(hidden, like.fill[0]) * _filled(inner / sharing, like.fill[1]) * mixture.num_experts
        part = filled / (like.hidden_size * like.intermediate_size / sharing * like.num_experts)
        return CALL_MS + part * (measured_ms - like.call_ms)

    def _prompt_attention_ms(self) -> dict[int, float]:
        """All layers, by the tokens of a prompt."""
        tables = [self.kernels.context[heads] for heads in self._heads()]
        sizes = sorted(set(tables[0]).intersection(*tables))
        return {size: self._per_table * sum(table[size] for table in tables) for size in sizes}

    def _decode_attention_ms(self) -> dict[tuple[int, int], float]:
        """All layers, by the number of decodes and the context of each."""
        tables = [self.kernels.generation[heads] for heads in self._heads()]
        points = sorted(set(tables[0]).intersection(*tables))
        return {point: self._per_table * sum(table[point] for table in tables) for point in points}

    @property
    def _per_table(self) -> float:
        return self.model.shape.num_layers / len(self._heads())

    def _heads(self) -> list[Heads]:
        """One for each kind of layer; there are as many of each."""
        shape = self.model.shape
        queries, windows = shape.num_heads // self.num_devices, sorted({0, self.model.window})
        return [Heads(queries, self._num_keys, shape.head_dim, window, self.model.kv) for window in windows]

    @property
    def _num_keys(self) -> int:
        """KV heads of a device: more devices than heads hold copies."""
        return max(1, self.model.shape.num_kv_heads // self.num_devices)


@dataclass(frozen=True, slots=True)
class Composed:
    """Costs, and the error of 90 % of points that were held out of a fit to the others, relative."""

    prefill: PrefillCost
    decode: DecodeCost
    held_out_p90: tuple[float, float]


def compose(composer: Composer) -> Composed:
    """Fit to every other point, judge by the rest, and then fit to all."""
    prefills, decodes = composer.prefill_samples(), composer.decode_samples()
    prefill, decode = fit_prefill(prefills[::2]), fit_decode(decodes[::2])
    prefill_errors = [
        prefill_s(prefill, one.new_tokens, one.cached_tokens) / one.elapsed_s - 1 for one in prefills[1::2]
    ]
    decode_errors = [
        decode_step_s(decode, one.num_requests, one.context_tokens) / one.elapsed_s - 1 for one in decodes[1::2]
    ]
    return Composed(fit_prefill(prefills), fit_decode(decodes), (_p90(prefill_errors), _p90(decode_errors)))


def _filled(size: float, multiple: int) -> int:
    return ceil(size / multiple) * multiple


def _p90(errors: Sequence[float]) -> float:
    return float(np.percentile(np.abs(errors), 90))
