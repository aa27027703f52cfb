"""What a decode step costs whose requests have 1, 4 or 16 LoRA adapters, beside one whose requests have none.

    python -m bench.engine.adapters [--model REFERENCE] [--requests 16] [--rounds 40] [--json FILE]

All requests decode; each has an adapter of all seven projections, and of those as many differ as a row says. Rows take
turns, a step each, so that whatever else the machine does meets all of them. Medians of the steps, in one process.
"""

import argparse
import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from bench.engine.under_test import GREEDY, EngineUnderTest
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.models.files.layer_shapes import projection_shapes
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.scheduling.batch import Chunk

CONTEXT = 256  # tokens of each request
COUNTS, RANK = (1, 4, 16), 16  # of adapters
WARM_UP = 3


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """``num_adapters`` 0: the plain step. ``ratio``: to that one."""

    num_adapters: int
    step_ms: float
    quartiles_ms: tuple[float, float]
    ratio: float
    bytes_mib: float  # of the weights of these adapters


def write_random_adapter(folder: Path, model: ModelConfig, seed: int) -> AdapterFolder:
    """As PEFT saves one, of random factors: all projections of all layers. The model has no experts."""
    folder.mkdir(parents=True)
    generator, tensors = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    for layer in range(model.num_layers):
        for projection, (num_out, num_in) in projection_shapes(model).items():
            name = f"base_model.model.model.layers.{layer}.{projection}"
            tensors[f"{name}.lora_A.weight"] = 0.02 * torch.randn((RANK, num_in), generator=generator)
            tensors[f"{name}.lora_B.weight"] = 0.02 * torch.randn((num_out, RANK), generator=generator)
    save_file(tensors, folder / WEIGHTS_FILE)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none"}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    return AdapterFolder.read(folder)


def measure(options: argparse.Namespace, folder: Path) -> list[AdapterRow]:
    model = prepared_dir(options.model)
    config = ModelConfig.load(model)
    engine = EngineUnderTest(model, "float32", options.requests * CONTEXT)
    num_weights = 0
    for number in range(max(COUNTS)):
        adapter = write_random_adapter(folder / str(number), config, number)
        engine.add_adapter(str(number), adapter)
        num_weights = adapter.num_weights
    counts = (0, *COUNTS)
    times = _in_turns(engine, counts, options.requests, options.rounds)
    plain = statistics.median(times[0])
    return [_row(count, times[count], plain, 4 * num_weights) for count in counts]


def _in_turns(engine: EngineUnderTest, counts: Sequence[int], requests: int, rounds: int) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {count: [] for count in counts}
    order, shuffle = list(counts), random.Random(1)
    for number in range(WARM_UP + rounds):
        shuffle.shuffle(order)
        for count in order:
            elapsed_s = engine.execute(_decodes(engine, requests, count)).elapsed_s
            if number >= WARM_UP:
                times[count].append(elapsed_s)
    return times


def _decodes(engine: EngineUnderTest, requests: int, num_adapters: int) -> list[Chunk]:
    """Neighbours have different adapters, as requests that came in any order do."""
    return [
        Chunk(
            str(i),
            [100 + i],
            CONTEXT - 1,
            engine.blocks(i, CONTEXT),
            GREEDY,
            adapter=str(i % num_adapters) if num_adapters else "",
        )
        for i in range(requests)
    ]


def _row(count: int, times: Sequence[float], plain: float, adapter_bytes: int) -> AdapterRow:
    low, median, high = statistics.quantiles(times, n=4)
    quartiles = (1e3 * low, 1e3 * high)
    return AdapterRow(count, 1e3 * median, quartiles, median / plain, count * adapter_bytes / 2**20)


def main() -> None:
    parser = script_parser("bench.engine.adapters", __doc__, model=True, rounds=40, json=True)
    parser.add_argument("--requests", type=int, default=16)
    options = parser.parse_args()
    with errors_in_a_line(), tempfile.TemporaryDirectory() as name:
        rows = measure(options, Path(name))
    table = [
        (
            str(row.num_adapters or "none"),
            f"{row.bytes_mib:.0f}",
            f"{row.step_ms:.1f}",
            f"{row.quartiles_ms[0]:.1f} to {row.quartiles_ms[1]:.1f}",
            f"{row.ratio:.2f}",
        )
        for row in rows
    ]
    title = f"Decode steps of {options.requests} requests, rank {RANK}"
    print_table(title, ["adapters"], ["their weights, MiB", "step, ms", "quartiles", "of a plain step"], table)
    write_json(options.json, [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
