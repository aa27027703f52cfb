"""Conversations on a live mesh whose KV does not fit into its engine's memory: with KV tiers and without.

    python -m bench.engine.kv_tiers [--sessions 4] [--turns 5] [--first 1200] [--turn-tokens 200] [--answer 32]
        [--pool 160MiB] [--room 1GiB] [--at-once 1] [--rounds 1] [--arms off,host,both] [--together]
        [--model REFERENCE] [--random SHAPE] [--device cpu] [--dtype float32] [--json FILE]

Each turn of a conversation repeats its prompt and adds to it, and all conversations take turns: a turn comes when the
blocks of the turn before have left the engine's memory, unless ``--pool`` holds them all. Each arm is a mesh of its own
with one engine and empty tiers; with more than one round the arms take turns. ``off`` has no tiers and computes each
prompt anew; ``host`` has room for all in the host's memory; ``both`` for an eighth, and for all on disk. ``peers`` has
two engines with room for all and no tier to speak of: each turn is the other engine's, which pulls what the first has.

``--together`` is for small differences, as where all fits: the meshes of all arms run at once, and take turns with each
turn of the conversations, of which there are new ones each round. So what else the machine does falls on all of them,
and an arm is compared with the first one turn by turn, by the clock and by its engines' CPU time.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.machine import cpu_s
from bench.harness.tables import print_table
from bench.live.mesh import PATIENT, STOP_S, LiveMesh, mesh_command, mesh_of
from bench.live.ports import free_port
from bench.models.random_llama import add_random_argument, random_model
from mesh.errors import CommandError
from mesh.topology.values import size

TOKENS = range(100, 228)  # that every vocabulary has
PATIENCE_S = 600.0
STORED_S = 1.0  # in which an idle engine stores what is new
TOPOLOGY = """
[services.chat]
model = "{model}"
dtype = "{dtype}"
ttft_ms = 60000
tpot_ms = 1000
[engines.engine]
count = {count}
device = "{device}"
kv_memory = "{pool}"
[gateways.gateway]
port = {port}
[policy]
name = "kv_aware"
{tiers}
"""


@dataclass(slots=True)
class Measured:
    """What one mesh did. Lists are by turn."""

    arm: str
    ttft_s: list[list[float]]
    cached: list[int]  # tokens of prompts that were not computed
    elapsed_s: float = 0.0
    cpu_s: float = 0.0  # of engines' processes, from the first turn to a second after the last
    engine: dict[str, Any] = field(default_factory=dict)  # row of `mesh status`, of the one that served last


def tiers_of(arm: str, room: int, memory: str, disk: Path) -> str:
    """The topology's table. ``room``: bytes for all conversations."""
    if arm == "off":
        return ""
    if arm == "peers":
        return f'[kv_tiers]\nhost = "1MiB"\nhost_folder = "{memory}/host"\npeers = true\n'
    host = room if arm == "host" else room // 8
    table = f'[kv_tiers]\nhost = "{host}B"\nhost_folder = "{memory}/host"\n'
    return table if arm == "host" else f'{table}disk = "{room}B"\ndisk_folder = "{disk}"\n'


def conversations(options: argparse.Namespace, seed: int) -> list[list[list[int]]]:
    """The prompts of each: by turn, token ids."""
    lengths = [options.first + turn * options.turn_tokens for turn in range(options.turns)]
    talks = [Random(f"{seed} {number}").choices(TOKENS, k=lengths[-1]) for number in range(options.sessions)]
    return [[talk[:length] for length in lengths] for talk in talks]


def _cpu_s(mesh: LiveMesh) -> float:
    return cpu_s(row["pid"] for row in mesh.status()["engines"])


@contextmanager
def _running(options: argparse.Namespace, arm: str) -> Iterator[LiveMesh]:
    """A mesh that has had its first request."""
    with TemporaryDirectory(dir="/dev/shm") as memory, TemporaryDirectory() as disk:
        tiers = tiers_of(arm, size(options.room), memory, Path(disk) / "disk")
        pool, count = (options.room, 2) if arm == "peers" else (options.pool, 1)
        engines = {"model": options.model, "dtype": options.dtype, "device": options.device}
        text = TOPOLOGY.format(**engines, pool=pool, count=count, port=free_port(), tiers=tiers)
        with mesh_of(PATIENT + text) as mesh:
            _send(mesh, [1] * 64, 8)  # the first request
            yield mesh


def measure(options: argparse.Namespace, arm: str, seed: int) -> Measured:
    """Play one round in a mesh of its own."""
    with _running(options, arm) as mesh:
        talks = conversations(options, seed)
        names = [row["id"] for row in mesh.status()["engines"]]
        measured, started, used_s = Measured(arm, [], []), time.perf_counter(), _cpu_s(mesh)
        for turn in range(options.turns):
            _leave_one(mesh, names, turn % len(names))
            _play(mesh, options, [talk[turn] for talk in talks], measured)
        measured.elapsed_s = time.perf_counter() - started
        time.sleep(STORED_S)
        measured.cpu_s = _cpu_s(mesh) - used_s
        measured.engine = mesh.status()["engines"][(options.turns - 1) % len(names)]
        return measured


def _play(mesh: LiveMesh, options: argparse.Namespace, prompts: Sequence[Sequence[int]], measured: Measured) -> None:
    """Play a turn of all conversations."""
    with ThreadPoolExecutor(options.at_once) as clients:
        answers = list(clients.map(lambda prompt: _send(mesh, prompt, options.answer), prompts))
    measured.ttft_s.append([ttft_s for ttft_s, _ in answers])
    measured.cached.append(sum(cached for _, cached in answers))


def measure_together(options: argparse.Namespace, arms: Sequence[str]) -> list[Measured]:
    """Play all rounds in meshes that run at once. Each result is of one turn of one arm, in the order of ``arms``."""
    found: list[Measured] = []
    with ExitStack() as stack:
        meshes = {arm: stack.enter_context(_running(options, arm)) for arm in arms}
        for number in range(options.rounds):
            talks = conversations(options, number)
            for turn in range(options.turns):
                now = dict[str, Measured]()
                for arm in arms if len(found) // len(arms) % 2 == 0 else reversed(arms):
                    now[arm] = measured = Measured(arm, [], [])
                    started, used_s = time.perf_counter(), _cpu_s(meshes[arm])
                    _play(meshes[arm], options, [talk[turn] for talk in talks], measured)
                    measured.elapsed_s = time.perf_counter() - started
                    measured.cpu_s = _cpu_s(meshes[arm]) - used_s
                    time.sleep(STORED_S)
                    [measured.engine] = meshes[arm].status()["engines"]
                found += [now[arm] for arm in arms]
    return found


def print_together(runs: Sequence[Measured], arms: Sequence[str]) -> None:
    """Print each arm beside the first one."""
    by_arm = {arm: [run for run in runs if run.arm == arm] for arm in arms}
    first, rows = by_arm[arms[0]], list[list[str]]()
    for arm, own in by_arm.items():
        rates = [one.elapsed_s / other.elapsed_s for one, other in zip(first, own, strict=True)]
        cpu = [one.cpu_s / other.cpu_s for one, other in zip(first, own, strict=True)]
        ttft_s = median(ttft_s for run in own for turn in run.ttft_s for ttft_s in turn)
        tiers = own[-1].engine["tiers"].values()
        stored, loaded = (sum(tier[f"{what}_blocks"] for tier in tiers) for what in ("stored", "loaded"))
        figures = [f"{ttft_s:.3f}", f"{median(rates):.3f}", f"{min(rates):.2f} to {max(rates):.2f}"]
        rows.append([arm, *figures, f"{median(cpu):.3f}", f"{stored}", f"{loaded}"])
    beside = f"beside {arms[0]}"
    columns = ("TTFT, s", f"rate {beside}", "of turns", f"rate in CPU time {beside}", "blocks stored", "loaded")
    print_table(f"Conversations, {len(first)} turns, medians", ("tiers",), columns, rows)


def _leave_one(mesh: LiveMesh, names: Sequence[str], number: int) -> None:
    """Let one engine serve, and the others only give what they have."""
    for name in names if len(names) > 1 else ():
        undo = ["--undo"] if name == names[number] else []
        mesh_command(mesh.environment, STOP_S, "drain", str(mesh.topology.path), name, *undo)


def _send(mesh: LiveMesh, prompt: Sequence[int], max_tokens: int) -> tuple[float, int]:
    """Seconds to the first token, and the tokens of the prompt that were not computed."""
    body = {"model": "chat", "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    started, first, cached = time.perf_counter(), None, 0
    url = f"http://127.0.0.1:{mesh.port}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as response:
        if response.status_code != 200:
            raise CommandError(f"{url}: {response.status_code}: {response.read().decode()}")
        for line in response.iter_lines():
            if line.startswith("data: {") and first is None:
                first = time.perf_counter()
            if '"cached_tokens"' in line:
                cached = int(line.split('"cached_tokens":')[1].split("}")[0].split(",")[0])
    if first is None:
        raise CommandError(f"{url}: no token came")
    return first - started, cached


def _rows(runs: Sequence[Measured], arms: Sequence[str]) -> Iterator[tuple[str, ...]]:
    last = {arm: [ttft for run in runs if run.arm == arm for ttft in run.ttft_s[-1]] for arm in arms}
    elapsed = {arm: [run.elapsed_s for run in runs if run.arm == arm] for arm in arms}
    for arm in arms:
        of_arm = [run for run in runs if run.arm == arm]
        paired = [off / one for off, one in zip(elapsed[arms[0]], elapsed[arm], strict=True)]
        yield (
            arm,
            f"{median(last[arm]):.3f}",
            f"{median(last[arm]) / median(last[arms[0]]):.3f}",
            f"{fmean(elapsed[arm]):.1f}",
            f"{median(paired):.3f}",
            f"{fmean(run.cpu_s for run in of_arm):.1f}",
            f"{sum(sum(run.cached) for run in of_arm)}",
            f"{sum(tier['loaded_blocks'] for run in of_arm for tier in run.engine['tiers'].values())}",
            f"{sum(tier['stored_blocks'] for run in of_arm for tier in run.engine['tiers'].values())}",
        )


def main() -> None:
    parser = script_parser("bench.engine.kv_tiers", __doc__, model=True, rounds=1, json=True)
    add_random_argument(parser)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--first", type=int, default=1200, help="tokens of the first turn's prompt (default: 1200)")
    parser.add_argument("--turn-tokens", type=int, default=200, help="that each turn adds (default: 200)")
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--pool", default="160MiB", help="KV memory of the engine (default: 160MiB)")
    parser.add_argument("--room", default="1GiB", help="of tiers, for all conversations (default: 1GiB)")
    parser.add_argument("--at-once", type=int, default=1, help="requests in flight (default: 1)")
    parser.add_argument("--arms", default="off,host,both", help="of off, host, both, peers (default: off,host,both)")
    parser.add_argument("--together", action="store_true", help="all arms at once, turn by turn: for small differences")
    parser.add_argument("--device", default="cpu", help="of the engines (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="of weights and KV (default: float32)")
    options = parser.parse_args()
    arms, runs = options.arms.split(","), list[Measured]()
    if options.together and "peers" in arms:
        parser.error("--together: is of arms with one engine each; leave peers out")
    with errors_in_a_line(), TemporaryDirectory() as name:
        options.model = random_model(options, Path(name)) or options.model
        if options.together:
            runs = measure_together(options, arms)
            print_together(runs, arms)
            write_json(options.json, [asdict(run) for run in runs])
            return
        for number in range(options.rounds):
            for arm in arms if number % 2 == 0 else reversed(arms):
                runs.append(measure(options, arm, number))
                print(f"{arm}: {runs[-1].elapsed_s:.1f} s", flush=True)
    columns = [
        "TTFT of the last turn, s",
        f"beside {arms[0]}",
        "all, s",
        f"rate beside {arms[0]}",
        "CPU, s",
        "cached tokens",
    ]
    print_table("Conversations", ["tiers"], [*columns, "blocks loaded", "stored"], list(_rows(runs, arms)))
    write_json(options.json, [asdict(run) for run in runs])


if __name__ == "__main__":
    main()
