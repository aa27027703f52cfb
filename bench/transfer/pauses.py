"""What a client notices when its request moves between two engines.

    python -m bench.transfer.pauses handover [--prompt-tokens 512] [--runs 9] [--json FILE]
    python -m bench.transfer.pauses migration [--contexts 256,...] [--runs 3] [--json FILE]

Two engine processes. Each run has a prompt of its own, so that nothing is found in a prefix cache. The first runs warm
up: memory that was never written is several times slower to copy to.

``handover``: in turns, one engine prefills and the other decodes, or one does both. The first token comes from the
engine that prefills in both cases, so the time to the second one counts. ``migration``: the longest gap between tokens
around a migration, against the length of the context, in milliseconds and in decode steps: the median of the same run's
gaps before.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from bench.harness.arguments import number_list, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.models.random_llama import add_random_argument, random_model
from bench.transfer.engine_client import EngineClient, engine_processes
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.control import Migrate
from mesh.wire.requests import Cancel, Epoch, RequestSpec, Sampling, Submit

FIRST, SECOND = "first", "second"
DEADLINE_S = 300.0


async def submit(
    client: EngineClient, engine: str, name: str, num_tokens: int, decode_engine: str | None = None
) -> None:
    """Send a request that decodes until it is cancelled, and wait for its first token."""
    client.sockets.send(engine, Submit(request(name, num_tokens), Epoch(1), decode_engine))
    await client.until(lambda: client.streams.get(name) or client.refusals)
    if client.refusals:
        raise RuntimeError(f"refused: {client.refusals[0].reason}")


async def cancel(client: EngineClient, names: Sequence[str]) -> None:
    """Wait until nothing is left of them."""
    for name in names:
        for engine in (FIRST, SECOND):
            client.sockets.send(engine, Cancel(name, Epoch(1, 10_000)))
    await client.until(lambda: client.is_idle(FIRST) and client.is_idle(SECOND))


# --- hand-overs -------------------------------------------------------------------------------------------------------

WARM_UP = 3  # pairs of runs
TOKENS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds to the first token, and from it to the second."""

    first_ms: float
    second_ms: float


async def handover(client: EngineClient, options: argparse.Namespace) -> dict[str, float]:
    """Medians. ``extra_ms``: how much later the second token came, of neighbouring runs. ``overhead`` is that beside
    the time to the first token on one engine, which is the prefill.
    """
    pairs = [
        (await _run(client, f"alone-{number}", None, options), await _run(client, f"handed-{number}", SECOND, options))
        for number in range(WARM_UP + options.runs)
    ][WARM_UP:]
    extra_ms = statistics.median(
        handed.first_ms + handed.second_ms - alone.first_ms - alone.second_ms for alone, handed in pairs
    )
    prefill_ms = statistics.median(alone.first_ms for alone, _ in pairs)
    return {
        "prefill_ms": prefill_ms,
        "second_alone_ms": statistics.median(alone.second_ms for alone, _ in pairs),
        "second_handed_ms": statistics.median(handed.second_ms for _, handed in pairs),
        "extra_ms": extra_ms,
        "overhead": extra_ms / prefill_ms,
    }


async def _run(client: EngineClient, name: str, decode_engine: str | None, options: argparse.Namespace) -> Run:
    asked_at = time.perf_counter()
    await submit(client, FIRST, name, options.prompt_tokens, decode_engine)
    await client.until(lambda: len(client.streams[name]) >= TOKENS)
    if client.owners[name] != (decode_engine or FIRST):
        raise RuntimeError(f"{name} ended on {client.owners[name]}")
    await cancel(client, [name])
    first, second, *_ = client.token_times[name]
    return Run(1e3 * (first - asked_at), 1e3 * (second - first))


# --- migrations -------------------------------------------------------------------------------------------------------

BEFORE, AFTER = 24, 8  # tokens


@dataclass(frozen=True, slots=True)
class Move:
    """One migration. ``usual_ms``: the longest gap before it, which tells how quiet the machine is.

    ``stop_ms``: from the last token of the old owner to the first of the new one, which is a decode step more than the
    request stands still. ``copying_ms``: from the order to the first token of the new owner.
    """

    context: int
    step_ms: float
    usual_ms: float
    gap_ms: float
    stop_ms: float
    copying_ms: float

    def cells(self) -> Iterator[str]:
        yield f"{self.context}"
        yield from (f"{ms:.1f}" for ms in (self.step_ms, self.usual_ms, self.stop_ms))
        yield f"{self.gap_ms:.1f} ({self.gap_ms / self.step_ms:.1f} steps)"
        yield f"{self.copying_ms:.0f}"


async def migrations(client: EngineClient, options: argparse.Namespace) -> list[Move]:
    """The first move of all warms up."""
    contexts = options.contexts[:1] + tuple(context for context in options.contexts for _ in range(options.runs))
    return [await _move(client, f"move-{number}", context) for number, context in enumerate(contexts)][1:]


async def _move(client: EngineClient, name: str, context: int) -> Move:
    """Let a request decode on the first engine, and move it."""
    await submit(client, FIRST, name, context)
    await client.until(lambda: len(client.streams[name]) >= BEFORE)
    asked_at, num_before = time.perf_counter(), len(client.streams[name])
    client.sockets.send(FIRST, Migrate(name, SECOND, "measured"))
    await client.until(lambda: client.owners[name] == SECOND)
    num_moved = len(client.streams[name])
    moved_at = client.token_times[name][num_moved - 1]
    await client.until(lambda: len(client.streams[name]) >= num_moved + AFTER)
    await cancel(client, [name])
    gaps = [1e3 * (later - earlier) for earlier, later in pairwise(client.token_times[name])]
    before, around = gaps[2 : num_before - 1], gaps[num_before - 1 : num_moved + AFTER - 1]
    copying_ms = 1e3 * (moved_at - asked_at)
    return Move(context, statistics.median(before), max(before), max(around), gaps[num_moved - 2], copying_ms)


TOKEN_IDS = range(100, 1000)  # that any model knows
ENDLESS = Sampling(max_tokens=10_000, seed=0, temperature=0.0, ignore_eos=True)
TOPOLOGY = """
[mesh]
name = "two-engines"
log_level = "warning"
[services.model]
model = {model}
dtype = "{dtype}"
ttft_ms = 600000
tpot_ms = 10000
[engines.first]
role = "multiplex"
device = "{device}"
kv_memory = "{kv_memory}"
{backend}
[engines.second]
role = "multiplex"
device = "{device}"
kv_memory = "{kv_memory}"
{backend}
[gateways.gateway]
[transfer]
{share}
"""
VLLM = """
backend = "vllm"
python = {python}
block_size = 32
options = {{ enforce_eager = true }}
"""


@contextmanager
def two_engines(arguments: argparse.Namespace) -> Iterator[Topology]:
    """Running, ``first`` and ``second``; the process of the bench is to be their gateway."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MESHSERVE_RUNTIME_DIR"] = folder
        file = Path(folder) / "topology.toml"
        model, python = random_model(arguments, Path(folder)) or arguments.model, arguments.vllm_python
        backend = VLLM.format(python=json.dumps(str(Path(python).absolute()))) if python else ""
        settings = {name: getattr(arguments, name) for name in ("kv_memory", "device", "dtype")}
        share = f"migration_share = {arguments.share}" if arguments.share else ""
        file.write_text(TOPOLOGY.format(model=json.dumps(model), backend=backend, share=share, **settings))
        topology = load(file)
        make_runtime_dir(topology)
        with engine_processes(topology):
            yield topology


def request(name: str, num_tokens: int) -> RequestSpec:
    """A request that decodes until it is cancelled, with a prompt of its own."""
    prompt = Random(name).choices(TOKEN_IDS, k=num_tokens)
    return RequestSpec(name, "gateway", "model", prompt, ENDLESS, slo_ttft_s=600.0, slo_tpot_s=10.0)


# --- the command ------------------------------------------------------------------------------------------------------

MEASURES: dict[str, Any] = {"handover": handover, "migration": migrations}
DEFAULTS = {"handover": {"kv_memory": "64MiB", "runs": 9}, "migration": {"kv_memory": "384MiB", "runs": 3}}
MOVES = ("prompt tokens", "step, ms", "longest gap before", "at the change", "longest around", "all stages")


async def measure(topology: Topology, options: argparse.Namespace) -> Any:
    async with EngineClient(topology, DEADLINE_S).running() as client:
        await client.all_ready()
        return await MEASURES[options.what](client, options)


def main() -> None:
    parser = script_parser("bench.transfer.pauses", __doc__, model=True, json=True)
    parser.add_argument("what", choices=MEASURES)
    add_random_argument(parser)
    parser.add_argument("--prompt-tokens", type=int, default=512, help="of a hand-over (default: 512)")
    contexts = (256, 512, 1024, 2048, 4096, 7936)
    parser.add_argument("--contexts", type=number_list, default=contexts, metavar="N,...", help="of migrations, tokens")
    parser.add_argument("--runs", type=int, help="of each (default: 9 or 3)")
    parser.add_argument("--dtype", default="float32", help="of weights and KV (default: float32)")
    parser.add_argument("--kv-memory", help="of each engine (default: 64MiB or 384MiB)")
    parser.add_argument("--device", default="cpu", help="of both engines (default: cpu)")
    parser.add_argument("--vllm-python", help="interpreter of an environment with vLLM, for vLLM engines; else torch's")
    parser.add_argument("--share", type=float, help="migration_share (default: the device's)")
    options = parser.parse_args()
    for name, default in DEFAULTS[options.what].items():
        setattr(options, name, getattr(options, name) or default)
    with two_engines(options) as topology:
        found = asyncio.run(measure(topology, options))
    if isinstance(found, dict):
        print_table("medians", ("",), ("",), [(name, f"{value:.3f}") for name, value in found.items()])
    else:
        print_table("ms", (), MOVES, [move.cells() for move in found])
    write_json(options.json, found)


if __name__ == "__main__":
    main()
