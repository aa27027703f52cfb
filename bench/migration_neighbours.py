"""What a migration costs the others: token gaps of decodes at both of its ends, while it runs and while none does.

    python -m bench.migration_neighbours [--contexts 512,2048] [--neighbours 3] [--runs 6] [--json FILE]

Two engines decode a few requests each. One more, of a longer context, is moved back and forth between them. The gaps
between the others' tokens from the order to the last token of the old owner are compared with those just before the
order, when the batches of both engines were the same.
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.engine_client import EngineClient
from bench.two_engines import add_arguments, endless, two_engines
from mesh.messages import Cancel, Epoch, Migrate, Submit
from mesh.topology.schema import Topology

DEADLINE_S = 300.0
QUIET_TOKENS = 24  # of the mover, before each order
ENGINES = ("first", "second")
GOAL = 1.05


@dataclass(frozen=True, slots=True)
class Run:
    """One migration. Milliseconds a token of the neighbours on the engine that gives, and on the one that takes."""

    context: int
    copying_ms: float
    source_before_ms: float
    source_during_ms: float
    destination_before_ms: float
    destination_during_ms: float

    @property
    def slowdowns(self) -> tuple[float, float]:
        return (
            self.source_during_ms / self.source_before_ms,
            self.destination_during_ms / self.destination_before_ms,
        )


def pace_ms(client: EngineClient, names: Sequence[str], start: float, end: float) -> float:
    """Mean milliseconds between tokens of these requests that came in an interval, which it bounds but for one gap."""
    spans, num_gaps = 0.0, 0
    for name in names:
        times = [at for at in client.token_times[name] if start <= at <= end]
        if len(times) > 1:
            spans += times[-1] - times[0]
            num_gaps += len(times) - 1
    return 1e3 * spans / num_gaps if num_gaps else float("nan")


async def migrate(client: EngineClient, mover: str, context: int, to: str, neighbours: dict[str, list[str]]) -> Run:
    source = client.owners[mover]
    num_tokens = len(client.streams[mover])
    await client.until(lambda: len(client.streams[mover]) >= num_tokens + QUIET_TOKENS)
    times, asked = client.token_times[mover], len(client.streams[mover])
    started_at, asked_at = times[num_tokens], times[asked - 1]
    client.sockets.send(source, Migrate(mover, to, "measured"))
    await client.until(lambda: client.owners[mover] == to)
    moved_at = times[-2]
    paces = [
        pace_ms(client, neighbours[engine], *interval)
        for engine in (source, to)
        for interval in ((started_at, asked_at), (asked_at, moved_at))
    ]
    return Run(context, 1e3 * (moved_at - asked_at), *paces)


async def measure(topology: Topology, contexts: Sequence[int], num_neighbours: int, num_runs: int) -> list[Run]:
    async with EngineClient(topology, DEADLINE_S).running() as client:
        await client.all_ready()
        runs: list[Run] = []
        for context in contexts:
            runs += await _measure(client, context, num_neighbours, num_runs)
        return runs


async def _measure(client: EngineClient, context: int, num_neighbours: int, num_runs: int) -> list[Run]:
    """Neighbours are made anew for each context, lest they grow without end."""
    neighbours = {engine: [f"{engine}-{context}-{number}" for number in range(num_neighbours)] for engine in ENGINES}
    for engine, names in neighbours.items():
        for number, name in enumerate(names):
            client.sockets.send(
                engine, Submit(endless(name, 128, 1000 * context + 10 * number + ENGINES.index(engine)), Epoch(1))
            )
    mover = f"mover-{context}"
    client.sockets.send(ENGINES[0], Submit(endless(mover, context, context), Epoch(1)))
    everybody = [mover, *(name for names in neighbours.values() for name in names)]
    await client.until(lambda: client.refusals or all(len(client.streams.get(name, ())) > 2 for name in everybody))
    if client.refusals:
        raise RuntimeError(f"refused: {client.refusals[0].reason}")
    runs = []
    for number in range(num_runs + 1):
        run = await migrate(client, mover, context, ENGINES[(number + 1) % 2], neighbours)
        if number:  # the first warms up
            runs.append(run)
            print(
                f"{context:6} tokens, copied in {run.copying_ms:5.0f} ms: {run.source_before_ms:5.1f} ->"
                f" {run.source_during_ms:5.1f} ms a token where it leaves, {run.destination_before_ms:5.1f} ->"
                f" {run.destination_during_ms:5.1f} where it comes",
                flush=True,
            )
    for name in everybody:
        for engine in ENGINES:
            client.sockets.send(engine, Cancel(name, Epoch(1, 10_000)))
    await client.until(lambda: all(map(client.is_idle, ENGINES)))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--contexts", default="512,2048,4096", help="prompt tokens of the request that moves")
    parser.add_argument("--neighbours", type=int, default=3, help="on each engine")
    parser.add_argument("--runs", type=int, default=6, help="migrations of each context")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    contexts = [int(word) for word in arguments.contexts.split(",")]
    with two_engines(arguments) as topology:
        runs = asyncio.run(measure(topology, contexts, arguments.neighbours, arguments.runs))
    for context in contexts:
        giving, taking = zip(*(run.slowdowns for run in runs if run.context == context), strict=True)
        print(
            f"{context:6} tokens: {statistics.median(giving):.3f}x where it leaves,"
            f" {statistics.median(taking):.3f}x where it comes (medians; goal: below {GOAL})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))


if __name__ == "__main__":
    main()
