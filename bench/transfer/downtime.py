"""What a migration costs its request: the longest gap between tokens around it, against the length of its context.

    python -m bench.transfer.downtime [--model REFERENCE] [--contexts 256,...] [--runs 3] [--json FILE]

Two engine processes. Each run has a prompt of its own, so that nothing is found in a prefix cache; its request decodes
on one engine for a while and is then moved to the other. A gap is told in milliseconds and in decode steps: the median
of the same run's gaps before. The pools hold one request, so their memory has been written before it is measured.
"""

import asyncio
import statistics
import time
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
CONTEXTS = (256, 512, 1024, 2048, 4096, 7936)
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

    @property
    def gap_steps(self) -> float:
        return self.gap_ms / self.step_ms


async def move(client: EngineClient, number: int, context: int) -> Move:
    """Let a request decode on the first engine, and move it."""
    name = f"move-{number}"
    spec = endless(name, context, number)
    client.sockets.send("first", Submit(spec, Epoch(1)))
    await client.until(lambda: len(client.streams.get(name, ())) >= BEFORE or client.refusals)
    if client.refusals:
        raise RuntimeError(f"refused: {client.refusals[0].reason}")
    asked_at, num_before = time.perf_counter(), len(client.streams[name])
    client.sockets.send("first", Migrate(name, "second", "measured"))
    await client.until(lambda: client.owners[name] == "second")
    num_moved = len(client.streams[name])
    moved_at = client.token_times[name][num_moved - 1]
    await client.until(lambda: len(client.streams[name]) >= num_moved + AFTER)
    client.sockets.send("second", Cancel(name, Epoch(1, 100)))
    await client.until(lambda: client.is_idle("first") and client.is_idle("second"))
    gaps = _gaps(client.token_times[name])
    around = gaps[num_before - 1 : num_moved + AFTER - 1]
    before = gaps[2 : num_before - 1]
    step_ms, usual_ms = 1e3 * statistics.median(before), 1e3 * max(before)
    return Move(context, step_ms, usual_ms, 1e3 * max(around), 1e3 * gaps[num_moved - 2], 1e3 * (moved_at - asked_at))


def _gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


async def measure(topology: Topology, contexts: Sequence[int], runs: int) -> list[Move]:
    """The first move of all warms up."""
    async with EngineClient(topology, DEADLINE_S).running() as client:
        await client.all_ready()
        await move(client, 0, contexts[0])
        moves = []
        for number, context in enumerate([context for context in contexts for _ in range(runs)], 1):
            one = await move(client, number, context)
            print(
                f"{context:6} tokens: longest gap {one.gap_ms:6.1f} ms, {one.gap_steps:4.1f} steps of"
                f" {one.step_ms:5.1f} ms (before: {one.usual_ms:6.1f} ms), {one.stop_ms:6.1f} ms at the change;"
                f" copied in {one.copying_ms:6.0f} ms",
                flush=True,
            )
            moves.append(one)
        return moves


def main() -> None:
    parser = script_parser("bench.transfer.downtime", __doc__)
    add_arguments(parser)
    parser.add_argument("--contexts", type=number_list, default=CONTEXTS, metavar="N,...", help="prompt tokens")
    parser.add_argument("--runs", type=int, default=3, help="of each context")
    add_json(parser)
    arguments = parser.parse_args()
    with two_engines(arguments) as topology:
        moves = asyncio.run(measure(topology, arguments.contexts, arguments.runs))
    if arguments.json:
        write_json(arguments.json, [asdict(one) for one in moves])


if __name__ == "__main__":
    main()
