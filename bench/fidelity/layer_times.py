"""Times of whole iterations composed from a profile of their kernels, as LLMServingSim 2.0 records it.

``dense.csv`` holds what each kernel of one layer takes for a number of tokens, ``attention.csv`` for a chunk of a
prompt or a batch of decodes, ``per_sequence.csv`` what follows the layers for a number of sequences. Microseconds; CPU
time and gaps between kernels are in none of them.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mesh.errors import UserError

ONCE = ("embedding", "final_layernorm")  # kernels of `dense.csv` that an iteration runs once, not once a layer
TWICE = ("layernorm",)  # in each layer, before attention and before the MLP

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """Times at sizes: straight lines between, and on from the last two."""

    sizes: Array
    times_us: Array

    @classmethod
    def of(cls, points: Mapping[int, float]) -> "Curve":
        ordered = sorted(points.items())
        return cls(np.array([size for size, _ in ordered], float), np.array([time for _, time in ordered], float))

    def at(self, size: float) -> float:
        if size <= self.sizes[-1] or len(self.sizes) == 1:
            return float(np.interp(size, self.sizes, self.times_us))
        slope = (self.times_us[-1] - self.times_us[-2]) / (self.sizes[-1] - self.sizes[-2])
        return float(self.times_us[-1] + slope * (size - self.sizes[-1]))


@dataclass(frozen=True, slots=True)
class Surface:
    """Curves at sizes of a second kind, interpolated in the same way."""

    curves: Mapping[int, Curve]

    @classmethod
    def of(cls, points: Mapping[tuple[int, int], float]) -> "Surface":
        curves: dict[int, dict[int, float]] = defaultdict(dict)
        for (first, second), time_us in points.items():
            curves[first][second] = time_us
        return cls({first: Curve.of(curve) for first, curve in curves.items()})

    def at(self, first: float, second: float) -> float:
        return Curve.of({size: curve.at(second) for size, curve in self.curves.items()}).at(first)


@dataclass(frozen=True, slots=True)
class LayerTimes:
    num_layers: int
    per_layer: Sequence[tuple[int, Curve]]  # how often each kernel runs in a layer
    once: Sequence[Curve]
    per_sequence: Sequence[Curve]
    prefill_attention: Surface  # tokens of the chunk, tokens before it
    decode_attention: Surface  # requests, tokens of each

    def iteration_s(self, prefills: Sequence[tuple[int, int]], decodes: Sequence[int]) -> float:
        """Time of chunks (new tokens, tokens before them) and of decodes (tokens of context, the newest included)."""
        num_tokens = sum(new for new, _ in prefills) + len(decodes)
        num_sequences = len(prefills) + len(decodes)
        layer_us = sum(times * curve.at(num_tokens) for times, curve in self.per_layer)
        layer_us += sum(self.prefill_attention.at(new, before) for new, before in prefills)
        if decodes:
            layer_us += self.decode_attention.at(len(decodes), sum(decodes) / len(decodes))
        once_us = sum(curve.at(num_tokens) for curve in self.once)
        return 1e-6 * (
            self.num_layers * layer_us + once_us + sum(curve.at(num_sequences) for curve in self.per_sequence)
        )


def load_layer_times(folder: Path, prefix: str, num_layers: int) -> LayerTimes:
    """From ``PREFIX__dense.csv`` and its kin. Raise `UserError` if a file is missing or malformed."""
    dense = {name: Curve.of(points) for name, points in _kernels(_find(folder, prefix, "dense"), "tokens").items()}
    last = _kernels(_find(folder, prefix, "per_sequence"), "sequences")
    prefill, decode = _attention(_find(folder, prefix, "attention"))
    return LayerTimes(
        num_layers,
        [(2 if name in TWICE else 1, curve) for name, curve in dense.items() if name not in ONCE],
        [curve for name, curve in dense.items() if name in ONCE],
        [Curve.of(points) for points in last.values()],
        prefill,
        decode,
    )


def _find(folder: Path, prefix: str, what: str) -> Path:
    names = (f"{prefix}__{what}.csv", f"{prefix}__{what}.csv.gz")
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no {names[0]} here, gzipped or not")
    return path


def _rows(path: Path) -> Iterable[dict[str, str]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            yield from csv.DictReader(file)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _numbers(path: Path, row: Mapping[str, str], *columns: str) -> list[float]:
    try:
        return [float(row[column]) for column in columns]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: a row without numbers in {', '.join(columns)}: {dict(row)}") from None


def _kernels(path: Path, size: str) -> dict[str, dict[int, float]]:
    """Size -> us, by the name of the kernel."""
    kernels: dict[str, dict[int, float]] = defaultdict(dict)
    for row in _rows(path):
        number, time_us = _numbers(path, row, size, "time_us")
        kernels[row["layer"]][int(number)] = time_us
    return kernels


def _attention(path: Path) -> tuple[Surface, Surface]:
    """Times of chunks alone and of decodes alone."""
    prefill: dict[tuple[int, int], float] = {}
    decode: dict[tuple[int, int], float] = {}
    for row in _rows(path):
        new, before, requests, context, time_us = _numbers(
            path, row, "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"
        )
        if new and not requests:
            prefill[int(new), int(before)] = time_us
        if requests and not new:
            decode[int(requests), int(context)] = time_us
    return Surface.of(prefill), Surface.of(decode)
