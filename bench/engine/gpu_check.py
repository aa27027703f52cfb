"""All tests and benches that need a GPU, in one call of under ten minutes: one table.

    python -m bench.engine.gpu_check [--device cuda:0] [--only tests tiers ...] [--out FOLDER]

Exit status: 0 if all tests pass, whatever the figures; 1 if one fails, a bench breaks, or there is no GPU.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.arguments import add_names, script_parser
from bench.harness.tables import print_table

Rows = list[tuple[str, str, str]]  # what, measured, goal
Tell = Callable[[Any], Rows]

BUDGET_S = 570.0
NAMES = ("tests", "transfer", "decode", "disaggregation", "migration", "tiers")
PROMPT, MOVED = 4000, 3500  # tokens, of Llama 2's 4,096: one that moves goes on meanwhile
TALKS = ("--sessions", "3", "--turns", "3", "--first", "2400", "--turn-tokens", "200", "--arms", "off,host")


@dataclass(frozen=True, slots=True)
class Task:
    """``tell`` reads what the command wrote to its file: (figure, goal) rows."""

    name: str
    command: Sequence[str]
    limit_s: float
    tell: Tell


def tasks(device: str, folder: Path) -> list[Task]:
    def bench(name: str, limit_s: float, tell: Tell, *command: str) -> Task:
        more = ("--device", device, "--json", str(folder / f"{name}.json"))
        return Task(name, [sys.executable, "-m", *command, *more], limit_s, tell)

    model = ("--random", "llama-2-7b", "--dtype", "bfloat16", "--kv-memory", "6GiB")
    prompts = ("handover", *model, "--prompt-tokens", str(PROMPT), "--runs", "5")
    moves = ("migration", *model, "--contexts", str(MOVED), "--runs", "2")
    talks = (*TALKS, "--random", "llama-2-7b", "--dtype", "bfloat16", "--pool", "3GiB", "--room", "12GiB")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    return [
        Task("tests", tests, 240.0, lambda _: []),
        bench("transfer", 120.0, told_transfer, "bench.transfer.speed"),
        bench("decode", 180.0, told_decode, "bench.engine.gpu_decode"),
        bench("disaggregation", 150.0, told_disaggregation, "bench.transfer.pauses", *prompts),
        bench("migration", 150.0, told_migration, "bench.transfer.pauses", *moves),
        bench("tiers", 150.0, told_tiers, "bench.engine.kv_tiers", *talks),
    ]


def told_transfer(found: Any) -> Rows:
    return [(row["way"], f"{row['ratio']:.2f} of a copy", ">= 0.60") for row in found["rows"][1:]]


def told_decode(found: Any) -> Rows:
    return [("decode step, Llama-2-7B, 32 x 1k", f"{found['ratio']:.2f}x of the memory floor", "<= 1.50x")]


def told_disaggregation(found: Any) -> Rows:
    return [(f"disaggregation, Llama-2-7B, {PROMPT} tokens", f"{found['overhead']:.1%} of the prefill", "< 5 %")]


def told_migration(found: Any) -> Rows:
    """From token to token is a step more than the request stands still."""
    worst = max(move["stop_ms"] / move["step_ms"] for move in found) - 1
    return [(f"migration, Llama-2-7B, {MOVED} tokens", f"{worst:.1f} steps of downtime", "< 2.0")]


def told_tiers(found: Any) -> Rows:
    off, host = (statistics.median(arm["ttft_s"][-1]) for arm in found)
    return [("third turn, Llama-2-7B, 2800 tokens, from the host", f"{host / off:.2f}x of computing it", "< 1")]


def run(task: Task, folder: Path, left_s: float) -> tuple[bool, Rows]:
    """Whether it went well, and its rows."""
    started = time.monotonic()
    try:
        ended = subprocess.run(task.command, check=False, timeout=min(task.limit_s, max(1.0, left_s)))
    except subprocess.TimeoutExpired:
        return False, [(task.name, "took too long", f"{task.limit_s:g} s")]
    if ended.returncode != 0:
        return False, [(task.name, f"exit status {ended.returncode}", "0")]
    rows = [(task.name, f"ok, {time.monotonic() - started:.0f} s", "")]
    file = folder / f"{task.name}.json"
    return True, rows + (task.tell(json.loads(file.read_text())) if file.exists() else [])


def main() -> int:
    parser = script_parser("bench.engine.gpu_check", __doc__)
    parser.add_argument("--device", default="cuda:0")
    add_names(parser, "--only", NAMES)
    parser.add_argument("--out", type=Path, help="where to keep what the benches wrote")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("gpu-check: torch sees no CUDA device here; run it on a machine with an NVIDIA GPU", file=sys.stderr)
        return 1
    ends_at = time.monotonic() + BUDGET_S
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = [task for task in tasks(options.device, folder) if task.name in options.only]
        found = [run(task, folder, ends_at - time.monotonic()) for task in chosen]
    title = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print_table(title, ("what", "measured", "goal"), (), [row for _, rows in found for row in rows])
    return 0 if all(went_well for went_well, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main())
