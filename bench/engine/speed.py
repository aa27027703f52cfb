"""Speed of the torch engine alone: decode steps and prefills, beside what this machine could do at best.

    python -m bench.engine.speed [--model REFERENCE] [--threads N] [--json FILE]

Both are measured in the same run. The least time of a decode step is that of reading the weights once; that of a
prefill is its multiplications at the rate of a large square product.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import psutil
import torch

from bench.engine.under_test import EngineUnderTest
from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.machine import timed
from bench.harness.tables import print_table
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir

BATCHES = (1, 4, 16)
PROMPTS = (64, 512)
CONTEXT = 128  # tokens of each decoding request
SQUARE = 1536
OTHERS = ("bfloat16", "int8")  # beside float32


@dataclass(frozen=True, slots=True)
class Row:
    """Medians in milliseconds of one kind of step, measured in turns: what else the machine does slows all alike."""

    what: str
    floor_ms: float
    exact_ms: float
    others_ms: Sequence[float]  # by `OTHERS`

    def cells(self) -> list[str]:
        exact = f"{self.exact_ms:.1f} ({self.exact_ms / self.floor_ms:.2f}x floor)"
        others = [f"{time_ms:.1f} ({self.exact_ms / time_ms:.2f}x float32's rate)" for time_ms in self.others_ms]
        return [self.what, f"{self.floor_ms:.1f}", exact, *others]


def medians_ms(runs: Sequence[Callable[[], object]], repeat: int) -> list[float]:
    """Median time of each of the runs, which take turns."""
    for run in runs:
        run()
    rounds = [[1e3 * timed(run) for run in runs] for _ in range(repeat)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def layer_parameters(config: ModelConfig) -> int:
    """Parameters that multiply each token in the layers."""
    heads = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    return config.num_layers * config.hidden_size * (heads + 3 * config.intermediate_size)


def measure(config: ModelConfig, engines: Sequence[EngineUnderTest]) -> list[Row]:
    in_layers, in_head = layer_parameters(config), config.vocab_size * config.hidden_size
    weights = torch.ones(in_layers + in_head)
    square = torch.rand(SQUARE, SQUARE)
    rows = []
    runs: list[Callable[[], object]]
    for n in BATCHES:
        runs = [weights.sum, *(partial(engine.decode, n, CONTEXT) for engine in engines)]
        floor_ms, exact_ms, *others_ms = medians_ms(runs, 15)
        rows.append(Row(f"decode, {n} requests", floor_ms, exact_ms, others_ms))
    for n in PROMPTS:
        runs = [lambda: square @ square, *(partial(engine.prefill, n) for engine in engines)]
        square_ms, exact_ms, *others_ms = medians_ms(runs, 5)
        floor_ms = (n * in_layers + in_head) / SQUARE**3 * square_ms
        rows.append(Row(f"prefill, {n} tokens", floor_ms, exact_ms, others_ms))
    return rows


def main() -> None:
    parser = script_parser("bench.engine.speed", __doc__, model=True, json=True)
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of each engine (default: 1)")
    arguments = parser.parse_args()
    if arguments.threads < 1:
        parser.error("argument --threads: use 1 or more")
    folder = prepared_dir(arguments.model)
    capacity = max(max(BATCHES) * CONTEXT, *PROMPTS)
    engine = partial(EngineUnderTest, folder, max_tokens=capacity, threads=arguments.threads)
    exact = engine("float32")
    rss_mib = psutil.Process().memory_info().rss / 2**20
    others = [engine(dtype) for dtype in OTHERS]
    rows = measure(ModelConfig.load(folder), [exact, *others])
    print_table("ms (medians)", ("",), ("floor", "float32", *OTHERS), [row.cells() for row in rows])
    print(f"resident with float32 loaded and KV of {capacity} tokens: {rss_mib:.0f} MiB")
    write_json(arguments.json, {"rss_mib": rss_mib, "rows": rows})


if __name__ == "__main__":
    main()
