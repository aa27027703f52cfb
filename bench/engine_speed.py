"""Speed of the torch engine alone: decode steps and prefills, beside what this machine could do at best.

    python -m bench.engine_speed [--model REFERENCE] [--threads 1] [--json FILE]

Both are measured in the same run. The least time of a decode step is that of reading the weights once; that of a
prefill is its multiplications at the rate of a large square product.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil
import torch

from bench.engine_under_test import EngineUnderTest, add_model_argument
from engines.models.config import ModelConfig
from engines.models.store import prepared_dir

BATCHES = (1, 4, 16)
PROMPTS = (64, 512)
CONTEXT = 128  # tokens of each decoding request
SQUARE = 1536


@dataclass(frozen=True, slots=True)
class Floors:
    """Milliseconds at best, in float32."""

    read_weights_ms: float
    prefill_ms: dict[int, float]


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians in milliseconds, by batch size and by prompt length."""

    dtype: str
    load_s: float
    rss_mib: float
    decode_ms: dict[int, float]
    prefill_ms: dict[int, float]


def median_ms(run: Callable[[], object], repeat: int) -> float:
    run()
    return statistics.median(_elapsed_ms(run) for _ in range(repeat))


def _elapsed_ms(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - started)


def layer_parameters(config: ModelConfig) -> int:
    """Parameters that multiply each token in the layers."""
    heads = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    return config.num_layers * config.hidden_size * (heads + 3 * config.intermediate_size)


def measure_floors(config: ModelConfig) -> Floors:
    in_layers, in_head = layer_parameters(config), config.vocab_size * config.hidden_size
    weights = torch.ones(in_layers + in_head)
    read_ms = median_ms(weights.sum, 7)
    square = torch.rand(SQUARE, SQUARE)
    per_ms = SQUARE**3 / median_ms(lambda: square @ square, 7)
    return Floors(read_ms, {n: (n * in_layers + in_head) / per_ms for n in PROMPTS})


def measure_speed(folder: Path, dtype: str, threads: int) -> Speed:
    started = time.perf_counter()
    engine = EngineUnderTest(folder, dtype, max_tokens=max(max(BATCHES) * CONTEXT, *PROMPTS), threads=threads)
    load_s = time.perf_counter() - started
    decode_ms = {n: median_ms(partial(engine.decode, n, CONTEXT), 15) for n in BATCHES}
    prefill_ms = {n: median_ms(partial(engine.prefill, n), 3) for n in PROMPTS}
    return Speed(dtype, load_s, psutil.Process().memory_info().rss / 2**20, decode_ms, prefill_ms)


def table(floors: Floors, speeds: list[Speed]) -> str:
    exact = speeds[0]
    head = f"{'ms (median)':24}{'floor':>9}" + "".join(f"{speed.dtype:>21}" for speed in speeds)
    decodes = [
        f"decode, {n:3} requests    {floors.read_weights_ms:9.1f}"
        + "".join(_cell(speed.decode_ms[n], floors.read_weights_ms, exact.decode_ms[n]) for speed in speeds)
        for n in BATCHES
    ]
    prefills = [
        f"prefill, {n:4} tokens    {floors.prefill_ms[n]:9.1f}"
        + "".join(_cell(speed.prefill_ms[n], floors.prefill_ms[n], exact.prefill_ms[n]) for speed in speeds)
        for n in PROMPTS
    ]
    return "\n".join([head, *decodes, *prefills])


def _cell(value_ms: float, floor_ms: float, exact_ms: float) -> str:
    """The time, and how it compares: to the floor for float32, to float32 for the others."""
    ratio = f"{value_ms / floor_ms:.2f}x floor" if value_ms == exact_ms else f"{exact_ms / value_ms:.2f}x rate"
    return f"{value_ms:9.1f} {ratio:>10}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folder = prepared_dir(arguments.model)
    floors = measure_floors(ModelConfig.load(folder))
    speeds = [measure_speed(folder, dtype, arguments.threads) for dtype in ("float32", "int8")]
    print(table(floors, speeds))
    for speed in speeds:
        print(f"{speed.dtype}: loaded in {speed.load_s:.1f} s, {speed.rss_mib:.0f} MiB resident")
    if arguments.json:
        figures = {"floors": asdict(floors), "speeds": [asdict(speed) for speed in speeds]}
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
