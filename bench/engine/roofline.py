"""Decodes of one request with each type of weights, beside the rate at which memory is read in the same run.

    python -m bench.engine.roofline [--model REFERENCE] [--rounds 15] [--context 128] [--json FILE]

A decode reads all weights once, so their bytes over the rate at which a sum reads memory are its roof. Types take turns
with the sum, and times are those of the processor in the thread that computes. ``--model`` comes in blocks of codes,
which are the first type; the others are made from its floats. The JSON file is one that `bench.figures` draws.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.engine.decode_parts import READ_BYTES, TimedKernels
from bench.engine.speed import layer_parameters
from bench.engine.under_test import EngineUnderTest
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.torch_engine.layers import cpu_kernels
from mesh.errors import UserError

BLOCKS = "model.blocks"
TYPES = {"as it comes": "float32", "int8": "int8", "bfloat16": "bfloat16", "float32": "float32"}  # and their dtypes
FLOAT_BYTES = 4


@dataclass(slots=True)
class Weights:
    """One type. ``num_bytes``: that a decode reads; ``steps_s``: of its decodes, one a round."""

    name: str
    num_bytes: int
    steps_s: list[float] = field(default_factory=list)

    def speeds(self, reads_s: Sequence[float]) -> tuple[float, float]:
        """Return tokens a second: measured, and at the rate of reading ``READ_BYTES`` in so many seconds."""
        return 1.0 / median(self.steps_s), READ_BYTES / median(reads_s) / self.num_bytes


def without_blocks(folder: Path, model: Path) -> Path:
    """Return a folder with the model's floats alone."""
    for file in model.iterdir():
        if file.name != BLOCKS:
            (folder / file.name).symlink_to(file)
    return folder


def bytes_read(engine: EngineUnderTest, config: ModelConfig, context: int) -> int:
    """Bytes of weights that a decode reads: what kernels are given, or floats that torch multiplies by."""
    calling: Any = cpu_kernels
    kernels = calling._kernels
    counting = calling._kernels = TimedKernels(kernels)
    try:
        engine.decode(1, context)
    finally:
        calling._kernels = kernels
    parameters = layer_parameters(config) + config.vocab_size * config.hidden_size
    return counting.product_bytes or FLOAT_BYTES * parameters


def panels(found: Sequence[Weights], reads_s: Sequence[float]) -> list[Mapping[str, Any]]:
    """Return what `bench.figures` draws."""
    names = [one.name for one in found]
    speeds = [one.speeds(reads_s) for one in found]
    tokens = {
        "measured": [round(measured, 1) for measured, _ in speeds],
        "at the rate of reading": [round(roof, 1) for _, roof in speeds],
    }
    rates = [round(1e-9 * one.num_bytes * measured, 1) for one, (measured, _) in zip(found, speeds, strict=True)]
    read = round(1e-9 * READ_BYTES / median(reads_s), 1)
    return [
        {"kind": "bars", "title": "One request decodes, tokens/s", "x": names, "series": tokens},
        {"kind": "bars", "title": "Weights read, GB/s", "x": names, "series": {"measured": rates}, "goal": read},
    ]


def _cpu_s(run: Callable[[], object]) -> float:
    began = time.thread_time()
    run()
    return time.thread_time() - began


def main() -> None:
    parser = script_parser("bench.engine.roofline", __doc__, model=True, rounds=15, json=True)
    parser.add_argument("--context", type=int, default=128, help="tokens of the request")
    options = parser.parse_args()
    with errors_in_a_line(), tempfile.TemporaryDirectory() as name:
        model = prepared_dir(options.model)
        if not cpu_kernels.KERNELS or not (model / BLOCKS).exists():
            raise UserError(f"{options.model}: wants compiled kernels, and a model that comes in blocks (GGUF)")
        config, floats = ModelConfig.load(model), without_blocks(Path(name), model)
        folders = [model, *[floats] * (len(TYPES) - 1)]
        engines = [
            EngineUnderTest(folder, dtype, options.context)
            for folder, dtype in zip(folders, TYPES.values(), strict=True)
        ]
        found = [
            Weights(of, bytes_read(engine, config, options.context)) for of, engine in zip(TYPES, engines, strict=True)
        ]
        numbers, reads_s = torch.ones(READ_BYTES // FLOAT_BYTES), list[float]()
        for _ in range(options.rounds):
            reads_s.append(_cpu_s(numbers.sum))
            for weights, engine in zip(found, engines, strict=True):
                weights.steps_s.append(_cpu_s(lambda engine=engine: engine.decode(1, options.context)))  # type: ignore[misc]
    drawn = panels(found, reads_s)
    rows = [
        [one.name, f"{one.num_bytes / 1e6:.0f}", *(f"{speed:.1f}" for speed in one.speeds(reads_s)), f"{rate}"]
        for one, rate in zip(found, drawn[1]["series"]["measured"], strict=True)
    ]
    columns = ("MB a token", "tokens/s", "at the rate of reading", "GB/s")
    print_table(f"one request decodes; a sum reads {drawn[1]['goal']} GB/s", ("weights",), columns, rows)
    write_json(options.json, {"panels": drawn})


if __name__ == "__main__":
    main()
