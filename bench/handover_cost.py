"""What disaggregation costs a request: how much later its second token comes.

    python -m bench.handover_cost [--model REFERENCE] [--prompt-tokens 512] [--runs 9] [--kv-memory 64MiB] [--json FILE]

Two engine processes. In turns, one engine prefills and the other decodes, or one does both; each run has a prompt of
its own, so that nothing is found in a prefix cache. The time is that from the first to the second token at the gateway.
The pools are small enough to be used all over in the warm-up: memory that was never written is several times slower to
copy to. More `--kv-memory` than the runs fill shows that: the first requests of a fresh mesh.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.engine_client import EngineClient, engine_processes
from bench.engine_under_test import add_model_argument
from bench.rounds import Round
from mesh.messages import Epoch, RequestSpec, Sampling, Submit
from mesh.process import make_runtime_dir
from mesh.topology.parse import load
from mesh.topology.schema import Topology

DEADLINE_S = 120.0
NEW_TOKENS = 8
WARM_UP = 3  # pairs of runs
TOPOLOGY = """
[mesh]
name = "handover-cost"
log_level = "warning"
[services.model]
model = {model}
ttft_ms = 60000
tpot_ms = 10000
[engines.prefill]
role = "prefill"
kv_memory = "{kv_memory}"
[engines.decode]
role = "multiplex"
kv_memory = "{kv_memory}"
[gateways.gateway]
[transfer]
transport = "{transport}"
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds from the first token to the second, and on average between those that follow."""

    second_ms: float
    later_ms: float


class Runner:
    """Sends one request after the other."""

    def __init__(self, client: EngineClient, prompt_tokens: int) -> None:
        self._client = client
        self._prompt_tokens = prompt_tokens
        self._num_runs = 0

    async def run(self, decode_engine: str | None) -> Run:
        client = self._client
        self._num_runs += 1
        name = f"run-{self._num_runs}"
        client.sockets.send("prefill", Submit(self._spec(name), Epoch(1), decode_engine))
        await client.until(lambda: name in client.finished or client.refusals)
        if client.refusals:
            raise RuntimeError(f"refused: {client.refusals[0].reason}")
        if client.owners[name] != (decode_engine or "prefill"):
            raise RuntimeError(f"{name} ended on {client.owners[name]}")
        await client.until(lambda: client.is_idle("prefill") and client.is_idle("decode"))
        first, second, *_, last = client.token_times[name]
        return Run(1e3 * (second - first), 1e3 * (last - second) / (NEW_TOKENS - 2))

    def _spec(self, name: str) -> RequestSpec:
        sampling = Sampling(max_tokens=NEW_TOKENS, seed=0, temperature=0.0, ignore_eos=True)
        [prompt] = Round(1, self._prompt_tokens, NEW_TOKENS, seed=self._num_runs).prompts()
        return RequestSpec(name, "gateway", "model", prompt, sampling, slo_ttft_s=60.0, slo_tpot_s=10.0)


async def measure(topology: Topology, prompt_tokens: int, runs: int) -> tuple[list[Run], list[Run]]:
    """Runs on one engine, and runs handed over."""
    async with EngineClient(topology, DEADLINE_S).running() as client:
        await client.all_ready()
        runner = Runner(client, prompt_tokens)
        pairs = [(await runner.run(None), await runner.run("decode")) for _ in range(WARM_UP + runs)]
    return [alone for alone, _ in pairs[WARM_UP:]], [handed for _, handed in pairs[WARM_UP:]]


def summary(alone: list[Run], handed: list[Run]) -> dict[str, float]:
    """Medians in milliseconds. ``extra``: of the differences between neighbouring runs."""
    return {
        "second_alone_ms": statistics.median(run.second_ms for run in alone),
        "second_handed_ms": statistics.median(run.second_ms for run in handed),
        "later_alone_ms": statistics.median(run.later_ms for run in alone),
        "later_handed_ms": statistics.median(run.later_ms for run in handed),
        "extra_ms": statistics.median(b.second_ms - a.second_ms for a, b in zip(alone, handed, strict=True)),
    }


def deployment(model: str, kv_memory: str, transport: str) -> str:
    return TOPOLOGY.format(model=json.dumps(model), kv_memory=kv_memory, transport=transport)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.handover_cost", description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--kv-memory", default="64MiB", help="of each engine")
    parser.add_argument("--transport", choices=("auto", "shm", "tcp"), default="auto")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MESHSERVE_RUNTIME_DIR"] = folder
        file = Path(folder) / "topology.toml"
        file.write_text(deployment(arguments.model, arguments.kv_memory, arguments.transport))
        topology = load(file)
        make_runtime_dir(topology)
        with engine_processes(topology):
            alone, handed = asyncio.run(measure(topology, arguments.prompt_tokens, arguments.runs))
    figures = summary(alone, handed)
    for name, value in figures.items():
        print(f"{name:18}{value:9.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
