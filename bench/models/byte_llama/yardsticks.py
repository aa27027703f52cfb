"""What simpler means make of a text, in bits per byte: compressors, and byte models of a fixed order."""

import lzma
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BEGIN = 256
_BITS = 9  # of a symbol in an integer that holds several


def zlib_bits(held_out: Sequence[bytes]) -> float:
    """Of the documents in one piece."""
    data = b"\n".join(held_out)
    return 8 * len(zlib.compress(data, 9)) / len(data)


def lzma_bits(training: Sequence[bytes], held_out: Sequence[bytes]) -> float:
    """Of the documents in one piece, by how much longer the archive of the training text becomes with them."""
    before, data = b"\n".join(training), b"\n".join(held_out)
    return 8 * (len(_xz(before + data)) - len(_xz(before))) / len(data)


def _xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def order_bits(order: int, training: Sequence[bytes], held_out: Sequence[bytes]) -> float:
    """Of bytes given the ``order`` bytes before them (at most 6), all shorter contexts mixed in (Witten and Bell 1991).

    A context seen N times with T different bytes after it leaves T / (N + T) to the next shorter context.
    """
    known, unknown = _symbols(training, order), _symbols(held_out, order)
    probability = np.full(int((unknown[order:] != BEGIN).sum()), 1 / 256)
    for length in range(order + 1):
        grams, count = np.unique(_grams(known, order, length + 1), return_counts=True)
        contexts, first, num_distinct = np.unique(grams >> _BITS, return_index=True, return_counts=True)
        num_seen = np.add.reduceat(count, first)
        asked = _grams(unknown, order, length + 1)
        hits = _find(count, grams, asked)
        seen, distinct = _find(num_seen, contexts, asked >> _BITS), _find(num_distinct, contexts, asked >> _BITS)
        mixed = (hits + distinct * probability) / np.maximum(seen + distinct, 1)
        probability = np.where(seen > 0, mixed, probability)
    return float(-np.log2(probability).mean())


def _symbols(documents: Sequence[bytes], order: int) -> NDArray[np.int64]:
    """All documents, each with so many begin symbols before it that no context reaches into another one."""
    begin = np.full(max(order, 1), BEGIN, np.int64)
    parts = [part for one in documents for part in (begin, np.frombuffer(one, np.uint8).astype(np.int64))]
    return np.concatenate([begin, *parts])


def _grams(symbols: NDArray[np.int64], order: int, size: int) -> NDArray[np.int64]:
    """Each byte with the ``size`` - 1 symbols before it, as one integer."""
    ends = np.flatnonzero(symbols[order:] != BEGIN) + order
    grams = np.zeros(len(ends), np.int64)
    for back in reversed(range(size)):
        grams = (grams << _BITS) | symbols[ends - back]
    return grams


def _find(values: NDArray[np.int64], keys: NDArray[np.int64], asked: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each key that is asked for; 0 where there is none. Keys are sorted."""
    places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[places] == asked, values[places], 0)
