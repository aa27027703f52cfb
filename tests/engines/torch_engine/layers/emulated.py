"""The kernels for ARM's 64-bit processors, compiled here for them and run by an emulator."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.cpu_kernels import KV_KINDS
from engines.torch_engine.layers.quantised_weights import Codes

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
TO_INSTALL = {COMPILER: "gcc-aarch64-linux-gnu", EMULATOR: "qemu-user"}
SOURCE = Path(__file__).with_name("harness.c")
HEADERS = Path(__file__).parents[4] / "engines" / "torch_engine" / "csrc"
TRAPS = ("-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error")

_missing = [package for program, package in TO_INSTALL.items() if shutil.which(program) is None]
emulated = pytest.mark.skipif(bool(_missing), reason=f"no emulated ARM: install {' and '.join(_missing)}")


def compile_for_arm(folder: Path, *options: str) -> Path:
    program = folder / "harness"
    flags = [
        "-O2",
        "-static",
        "-fno-math-errno",
        "-Wno-psabi",
        "-Wno-unknown-pragmas",
        *TRAPS,
        *options,
        f"-I{HEADERS}",
    ]
    subprocess.run([COMPILER, *flags, str(SOURCE), "-o", str(program)], check=True)
    return program


class EmulatedKernels:
    """One set of kernels on an emulated processor, which is started for each task."""

    def __init__(self, program: Path, processor: str, kernels: str) -> None:
        self._command = [EMULATOR, "-cpu", processor, str(program), kernels]

    def product(self, codes: Codes, x: Tensor, out: Tensor, *, rounds: bool, adds: bool = False) -> Tensor:
        rows, (outs, ins) = len(x), codes.codes.shape
        minima = [] if codes.minima is None else [codes.minima]
        words = ["product", codes.form, int(rounds), int(adds), 1, rows, outs, ins]
        return self._run(words, [codes.codes, codes.scales, *minima, x, out]).view(rows, outs)

    def attend(self, queries: Tensor, rows: Tensor, tables: Tensor, lengths: Tensor, kind: AttentionKind) -> Tensor:
        words = ["attend", *_shape(queries, rows, tables, kind), 0]
        return self._run(words, [queries, rows, tables, lengths]).view(len(queries), -1)

    def attend_chunk(self, queries: Tensor, rows: Tensor, table: Tensor, before: int, kind: AttentionKind) -> Tensor:
        words = ["chunk", *_shape(queries, rows, table[None], kind), before]
        return self._run(words, [queries, rows, table]).view(len(queries), -1)

    def store(self, kv: Tensor, tokens: Tensor, index: Tensor) -> Tensor:
        """Return the tokens with what was stored."""
        num, heads, dim = kv.shape
        words = ["store", KV_KINDS[tokens.dtype], num, heads, dim, len(tokens)]
        return self._run(words, [kv, index, tokens]).view(tokens.dtype).view(tokens.shape)

    def normalised(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        return self._run(["normalise", *x.shape, float(epsilon).hex()], [x, weight]).view(x.shape)

    def turned(self, heads: Tensor, angles: Tensor) -> Tensor:
        words = ["rotate", *heads.shape, 2 * angles.shape[-1]]
        return self._run(words, [heads, torch.view_as_real(angles)]).view(heads.shape)

    def gated(self, x: Tensor) -> Tensor:
        rows, width = x.shape
        return self._run(["gate", rows, width // 2], [x]).view(rows, width // 2)

    def _run(self, words: Sequence[object], arrays: Sequence[Tensor]) -> Tensor:
        line = " ".join(map(str, words)) + "\n"
        given = line.encode() + b"".join(map(_bytes, arrays))
        done = subprocess.run(self._command, input=given, stdout=subprocess.PIPE, check=True)
        return torch.from_numpy(np.frombuffer(bytearray(done.stdout), np.float32))


def _bytes(array: Tensor) -> bytes:
    return array.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _shape(queries: Tensor, rows: Tensor, tables: Tensor, kind: AttentionKind) -> list[object]:
    """Of one KV head's queries, of KV, and of what is seen of it; there are two KV heads."""
    num, heads, dim = queries.shape
    seen = kind.scale.hex(), kind.window or 0, float(kind.softcap or 0).hex()
    return [KV_KINDS[rows.dtype], heads // 2, 2, rows.shape[1], dim, *seen, num, tables.shape[1], len(rows)]
