"""Decode steps of one request beside the rate at which memory is read in the same run, and where their time goes.

    python -m bench.engine.roofline [--model REFERENCE] [--rounds 15] [--context 128] [--json FILE]
    python -m bench.engine.roofline --parts [--dtype int8] [--rounds 60] [--model REFERENCE] [--json FILE]

A decode reads all weights once, so their bytes over the rate at which a sum reads memory are its roof. Types of weights
take turns with the sum, and times are those of the processor in the thread that computes, so that what else the machine
does counts little. ``--model`` comes in blocks of codes, which are the first type; the others are made from its floats.
The JSON file is one that `bench.figures` draws. ``--parts``: in which kernels the time of a step is spent, and outside
of them, with weights of one type.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

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
READ_BYTES, SUMS = 2**28, 7
REST = "all else: Python, torch's small operations, sampling"


class TimedKernels:
    """The kernels, whose time is added up by function. ``product_bytes``: of the weights that products read."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self.times_s: dict[str, list[float]] = defaultdict(list)
        self.product_bytes = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._kernels, name)

        def timed(*arguments: Any) -> Any:
            begin = time.thread_time()
            result = function(*arguments)
            self.times_s[name].append(time.thread_time() - begin)
            if name == "product":
                _, form, _, _, _, _, _, outs, ins, *_ = arguments
                self.product_bytes += self._kernels.packed_bytes(form, outs, ins)
            return result

        return timed


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


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Of a step, in milliseconds: medians. ``least_ms``: of reading its weights; None: it reads few or none."""

    name: str
    calls: int
    time_ms: float
    least_ms: float | None = None


def parts_of(engine: EngineUnderTest, context: int, steps: int) -> list[Part]:
    calling: Any = cpu_kernels
    kernels = calling._kernels
    timed = TimedKernels(kernels)
    engine.decode(1, context)
    rounds, calls = defaultdict[str, list[float]](list), dict[str, int]()
    for _ in range(steps):
        timed.times_s.clear()
        timed.product_bytes = 0
        calling._kernels = timed
        engine.decode(1, context)
        calling._kernels = kernels  # to take times takes long
        whole_s = _cpu_s(lambda: engine.decode(1, context))
        for name, times_s in timed.times_s.items():
            rounds[name].append(1e3 * sum(times_s))
            calls[name] = len(times_s)
        rounds[REST].append(1e3 * (whole_s - sum(sum(times_s) for times_s in timed.times_s.values())))
        rounds["step"].append(1e3 * whole_s)
    numbers = torch.ones(READ_BYTES // FLOAT_BYTES)
    least_ms = 1e3 * timed.product_bytes / READ_BYTES * median([_cpu_s(numbers.sum) for _ in range(SUMS)])
    leasts = {"product": least_ms, "step": least_ms}
    return [Part(name, calls.get(name, 1), median(own), leasts.get(name)) for name, own in rounds.items()]


# --- the command ------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = script_parser("bench.engine.roofline", __doc__, model=True, rounds=15, json=True)
    parser.add_argument("--context", type=int, default=128, help="tokens of the request")
    parser.add_argument("--parts", action="store_true", help="where the time of a step goes")
    parser.add_argument("--dtype", default="int8", help="of the weights whose step is taken apart (default: int8)")
    options = parser.parse_args()
    with errors_in_a_line():
        if not cpu_kernels.KERNELS:
            raise UserError("the kernels for processors were not compiled; install a C compiler, then MeshServe again")
        figures = _parts(options) if options.parts else _types(options)
    write_json(options.json, figures)


def _parts(options: argparse.Namespace) -> list[Part]:
    engine = EngineUnderTest(prepared_dir(options.model), options.dtype, options.context)
    parts = parts_of(engine, options.context, options.rounds)
    rows = [
        [part.name, f"{part.calls}", f"{part.time_ms:.2f}", "" if part.least_ms is None else f"{part.least_ms:.2f}"]
        for part in parts
    ]
    print_table("one decode step, ms of the processor", ("part",), ("calls", "time", "least, by its bytes"), rows)
    return parts


def _types(options: argparse.Namespace) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        model = prepared_dir(options.model)
        if not (model / BLOCKS).exists():
            raise UserError(f"{options.model}: wants a model that comes in blocks (GGUF)")
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
    return {"panels": drawn}


if __name__ == "__main__":
    main()
