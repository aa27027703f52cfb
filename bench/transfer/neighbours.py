"""What a migration costs the others: token gaps of decodes at both of its ends, while it runs and while none does.

    python -m bench.transfer.neighbours [--contexts 512,2048] [--neighbours 3] [--runs 12] [--json FILE]

Two engines decode a few requests each. One more, of a longer context, is moved from one to the other; each time another
one, with a prompt of its own, so that nothing is found in a prefix cache. The gaps between the others' tokens that
end between the order and the last token of the old owner are compared with those just before the order: the batches of
both engines are the same in both. A migration takes a few steps, so that the gaps of many are put together. Machines
change their speed meanwhile: a stretch in which nothing moves, before each order, is compared with the one before it.
"""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from bench.harness.arguments import add_json, number_list, script_parser
from bench.harness.files import write_json
from bench.transfer.engine_client import EngineClient
from bench.transfer.two_engines import add_arguments, endless, two_engines
from mesh.topology.schema import Topology
from mesh.wire.control import Migrate
from mesh.wire.requests import Cancel, Epoch, Submit

DEADLINE_S = 300.0
QUIET_TOKENS = 16  # of the mover, in each of the two stretches before each order
ENGINES = ("first", "second")
GOAL = 1.05


@dataclass(frozen=True, slots=True)
class Gaps:
    """Milliseconds between tokens of the neighbours on one engine."""

    before: list[float]
    during: list[float]


@dataclass(frozen=True, slots=True)
class Run:
    """One migration."""

    context: int
    copying_ms: float
    source: Gaps
    destination: Gaps
    source_unmoved: Gaps
    destination_unmoved: Gaps


def slowdown(gaps: Sequence[Gaps]) -> float:
    """Mean gap while requests migrate, in gaps of before; nan if a migration never took a step."""
    before, during = [ms for one in gaps for ms in one.before], [ms for one in gaps for ms in one.during]
    return statistics.fmean(during) / statistics.fmean(before) if before and during else float("nan")


def gaps_ms(client: EngineClient, names: Sequence[str], start: float, end: float) -> list[float]:
    """That end in an interval."""
    pairs = [pair for name in names for pair in pairwise(client.token_times[name])]
    return [1e3 * (later - earlier) for earlier, later in pairs if start < later <= end]


async def migrate(client: EngineClient, mover: str, context: int, to: str, neighbours: dict[str, list[str]]) -> Run:
    source = client.owners[mover]
    await client.until(lambda: len(client.streams[mover]) >= 2 + 2 * QUIET_TOKENS)
    times, asked = client.token_times[mover], len(client.streams[mover])
    first_at, second_at = times[1], times[1 + QUIET_TOKENS]  # gaps that began before the first token had the prefill
    asked_at = times[asked - 1]
    client.sockets.send(source, Migrate(mover, to, "measured"))
    await client.until(lambda: client.owners[mover] == to)
    moved_at = times[-2]
    of_ends = []
    for engine in (source, to):
        first = gaps_ms(client, neighbours[engine], first_at, second_at)
        second = gaps_ms(client, neighbours[engine], second_at, asked_at)
        of_ends.append((Gaps(second, gaps_ms(client, neighbours[engine], asked_at, moved_at)), Gaps(first, second)))
    (source_moved, source_unmoved), (destination_moved, destination_unmoved) = of_ends
    copying_ms = 1e3 * (moved_at - asked_at)
    return Run(context, copying_ms, source_moved, destination_moved, source_unmoved, destination_unmoved)


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
    everybody = [name for names in neighbours.values() for name in names]
    await _decode(client, everybody)
    runs = []
    for number in range(num_runs + 1):
        mover, (source, to) = f"mover-{context}-{number}", (ENGINES[number % 2], ENGINES[(number + 1) % 2])
        client.sockets.send(source, Submit(endless(mover, context, 1000 * context + 100 + number), Epoch(1)))
        await _decode(client, [mover])
        run = await migrate(client, mover, context, to, neighbours)
        _cancel(client, [mover])
        if number:  # the first warms up
            runs.append(run)
            print(
                f"{context:6} tokens, copied in {run.copying_ms:5.0f} ms: {slowdown([run.source]):.2f}x at the source,"
                f" {slowdown([run.destination]):.2f}x at the destination",
                flush=True,
            )
    _cancel(client, everybody)
    await client.until(lambda: all(map(client.is_idle, ENGINES)))
    return runs


async def _decode(client: EngineClient, names: Sequence[str]) -> None:
    await client.until(lambda: client.refusals or all(client.streams.get(name) for name in names))
    if client.refusals:
        raise RuntimeError(f"refused: {client.refusals[0].reason}")


def _cancel(client: EngineClient, names: Sequence[str]) -> None:
    for name in names:
        for engine in ENGINES:
            client.sockets.send(engine, Cancel(name, Epoch(1, 10_000)))


def main() -> None:
    parser = script_parser("bench.transfer.neighbours", __doc__)
    add_arguments(parser)
    parser.add_argument(
        "--contexts", type=number_list, default=(512, 2048, 4096), metavar="N,...", help="prompt tokens of who moves"
    )
    parser.add_argument("--neighbours", type=int, default=3, help="on each engine")
    parser.add_argument("--runs", type=int, default=12, help="migrations of each context")
    add_json(parser)
    arguments = parser.parse_args()
    with two_engines(arguments) as topology:
        runs = asyncio.run(measure(topology, arguments.contexts, arguments.neighbours, arguments.runs))
    for context in arguments.contexts:
        of_context = [run for run in runs if run.context == context]
        num_gaps = sum(len(run.source.during) + len(run.destination.during) for run in of_context)
        print(
            f"{context:6} tokens: {slowdown([run.source for run in of_context]):.3f}x where it leaves,"
            f" {slowdown([run.destination for run in of_context]):.3f}x where it comes ({num_gaps} gaps; goal: below"
            f" {GOAL}); while none moves {slowdown([run.source_unmoved for run in of_context]):.3f}x and"
            f" {slowdown([run.destination_unmoved for run in of_context]):.3f}x"
        )
    if arguments.json:
        write_json(arguments.json, [asdict(run) for run in runs])


if __name__ == "__main__":
    main()
