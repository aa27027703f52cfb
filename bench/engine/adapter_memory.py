"""How much memory adapters of different ranks really take when they come and go, beside what they are counted for.

    python -m bench.engine.adapter_memory [--model REFERENCE] [--memory 96MiB] [--loads 400] [--json FILE]

Adapters of ranks 4 to 64 are asked for at random; the room of an engine (`engines.adapters.room`) says which come and
which go, and a torch engine loads them. Were memory lost between what goes and what comes, as in a pool of pieces of
different sizes, the process would grow beyond what the adapters are counted for.
"""

import argparse
import gc
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.engine.under_test import EngineUnderTest, add_model_argument
from bench.harness.arguments import add_json, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.models.random_adapter import write_random_adapter
from engines.adapters.access import named
from engines.adapters.folder import AdapterFolder
from engines.adapters.places import AdapterSizes
from engines.adapters.room import AdapterRoom
from engines.effects import DropAdapter
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from mesh.process.freed_memory import give_back_freed_memory
from mesh.topology.values import size

RANKS = (4, 8, 16, 32, 64)
COUNT = 3  # adapters of each rank


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """After so many loads. ``grown_mib``: of the process, since before the first."""

    num_loads: int
    held_mib: float
    grown_mib: float


def measure(options: argparse.Namespace, folder: Path) -> list[MemoryRow]:
    model = prepared_dir(options.model)
    config, engine = ModelConfig.load(model), EngineUnderTest(model, "float32", 256)
    adapters = [
        write_random_adapter(folder / f"{rank}-{number}", config, rank, number)
        for rank in RANKS
        for number in range(COUNT)
    ]
    return _churn(engine, adapters, size(options.memory), options.loads)


def _churn(engine: EngineUnderTest, adapters: Sequence[AdapterFolder], memory: int, loads: int) -> list[MemoryRow]:
    room, draws, by_key = AdapterRoom(memory), random.Random(1), dict[str, AdapterFolder]()
    before, rows, num_loads = _resident_bytes(), list[MemoryRow](), 0
    while num_loads < loads:
        chosen = draws.choice(adapters)
        adapter = named(chosen.path.name, chosen)
        by_key[adapter.key] = chosen
        room.want(adapter, "model", AdapterSizes("float32"))
        for order in room.next_orders():
            if isinstance(order, DropAdapter):
                engine.drop_adapter(order.key)
                continue
            engine.add_adapter(order.adapter.key, by_key[order.adapter.key])
            room.loaded(order.adapter.key)
            num_loads += 1
            if num_loads % (loads // 4) == 0:
                rows.append(MemoryRow(num_loads, room.held_bytes / 2**20, (_resident_bytes() - before) / 2**20))
    return rows


def _resident_bytes() -> int:
    gc.collect()
    give_back_freed_memory()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    parser = script_parser("bench.engine.adapter_memory", __doc__)
    add_model_argument(parser)
    parser.add_argument("--memory", default="96MiB", help="adapter_memory of the engine (default: 96MiB)")
    parser.add_argument("--loads", type=int, default=400)
    add_json(parser)
    options = parser.parse_args()
    with errors_in_a_line(), tempfile.TemporaryDirectory() as name:
        rows = measure(options, Path(name))
    table = [(str(row.num_loads), f"{row.held_mib:.1f}", f"{row.grown_mib:.1f}") for row in rows]
    print_table("Adapters that come and go", ["loads"], ["counted, MiB", "the process grew by, MiB"], table)
    write_json(options.json, [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
