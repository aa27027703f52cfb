"""What disaggregation costs a request: how much later its second token comes, beside what its prompt takes.

    python -m bench.transfer.handover [--model REFERENCE] [--prompt-tokens 512] [--runs 9] [--kv-memory 64MiB]
        [--json FILE]

Two engine processes. In turns, one engine prefills and the other decodes, or one does both; each run has a prompt of
its own, so that nothing is found in a prefix cache. The first token comes from the engine that prefills in both cases:
what counts is the time to the second one. The pools are small enough to be used all over in the warm-up, as memory that
was never written is several times slower to copy to. More `--kv-memory` than the runs fill shows that: the first
requests of a fresh mesh.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.peers.rounds import Round
from bench.transfer.engine_client import EngineClient
from bench.transfer.two_engines import add_arguments, two_engines
from mesh.topology.schema import Topology
from mesh.wire.requests import Epoch, RequestSpec, Sampling, Submit

DEADLINE_S = 120.0
NEW_TOKENS = 8
WARM_UP = 3  # pairs of runs


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds to the first token, from it to the second, and on average between those that follow."""

    first_ms: float
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
        asked_at = time.perf_counter()
        client.sockets.send("first", Submit(self._spec(name), Epoch(1), decode_engine))
        await client.until(lambda: name in client.finished or client.refusals)
        if client.refusals:
            raise RuntimeError(f"refused: {client.refusals[0].reason}")
        if client.owners[name] != (decode_engine or "first"):
            raise RuntimeError(f"{name} ended on {client.owners[name]}")
        await client.until(lambda: client.is_idle("first") and client.is_idle("second"))
        first, second, *_, last = client.token_times[name]
        return Run(1e3 * (first - asked_at), 1e3 * (second - first), 1e3 * (last - second) / (NEW_TOKENS - 2))

    def _spec(self, name: str) -> RequestSpec:
        sampling = Sampling(max_tokens=NEW_TOKENS, seed=0, temperature=0.0, ignore_eos=True)
        [prompt] = Round(1, self._prompt_tokens, NEW_TOKENS, seed=self._num_runs).prompts()
        return RequestSpec(name, "gateway", "model", prompt, sampling, slo_ttft_s=60.0, slo_tpot_s=10.0)


async def measure(topology: Topology, prompt_tokens: int, runs: int) -> tuple[list[Run], list[Run]]:
    """Runs on one engine, and runs handed over."""
    async with EngineClient(topology, DEADLINE_S).running() as client:
        await client.all_ready()
        runner = Runner(client, prompt_tokens)
        pairs = [(await runner.run(None), await runner.run("second")) for _ in range(WARM_UP + runs)]
    return [alone for alone, _ in pairs[WARM_UP:]], [handed for _, handed in pairs[WARM_UP:]]


def summary(alone: list[Run], handed: list[Run]) -> dict[str, float]:
    """Medians. ``extra``: how much later the second token came, of neighbouring runs; ``overhead`` is that beside the
    time to the first token on one engine, which is the prefill.
    """
    extra_ms = statistics.median(
        b.first_ms + b.second_ms - a.first_ms - a.second_ms for a, b in zip(alone, handed, strict=True)
    )
    first_ms = statistics.median(run.first_ms for run in alone)
    return {
        "first_alone_ms": first_ms,
        "first_handed_ms": statistics.median(run.first_ms for run in handed),
        "second_alone_ms": statistics.median(run.second_ms for run in alone),
        "second_handed_ms": statistics.median(run.second_ms for run in handed),
        "later_alone_ms": statistics.median(run.later_ms for run in alone),
        "later_handed_ms": statistics.median(run.later_ms for run in handed),
        "extra_ms": extra_ms,
        "overhead": extra_ms / first_ms,
    }


def main() -> None:
    parser = script_parser("bench.transfer.handover", __doc__)
    add_arguments(parser)
    parser.set_defaults(kv_memory="64MiB")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--runs", type=int, default=9)
    add_json(parser)
    arguments = parser.parse_args()
    with two_engines(arguments) as topology:
        alone, handed = asyncio.run(measure(topology, arguments.prompt_tokens, arguments.runs))
    figures = summary(alone, handed)
    for name, value in figures.items():
        print(f"{name:18}{value:9.3f}")
    if arguments.json:
        write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
