"""What a request's move between two engines costs: the request itself, and the others that decode there.

    python -m bench.transfer.pauses handover [--prompt-tokens 512] [--runs 9] [--json FILE]
    python -m bench.transfer.pauses migration [--contexts 256,...] [--runs 3] [--json FILE]
    python -m bench.transfer.pauses neighbours [--contexts 512,2048] [--runs 12] [--json FILE]

Two engine processes. Each run has a prompt of its own, so that nothing is found in a prefix cache. The first runs warm
up: memory that was never written is several times slower to copy to.

``handover``: in turns, one engine prefills and the other decodes, or one does both. The first token comes from the
engine that prefills in both cases, so the time to the second one counts. ``migration``: the longest gap between tokens
around a migration, against the length of the context, in milliseconds and in decode steps: the median of the same run's
gaps before. ``neighbours``: gaps between the tokens of the others, of which each engine decodes a few, while a request
of a longer context moves, in those just before the order. The batches of both engines are the same in both. Machines
change their speed meanwhile: a stretch in which nothing moves is compared with the one before it.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.harness.arguments import add_json, number_list, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.transfer.engine_client import EngineClient
from bench.transfer.two_engines import add_arguments, request, two_engines
from mesh.topology.schema import Topology
from mesh.wire.control import Migrate
from mesh.wire.requests import Cancel, Epoch, Submit

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


# --- neighbours -------------------------------------------------------------------------------------------------------

NEIGHBOURS, THEIR_CONTEXT = 3, 128  # on each engine; tokens
QUIET_TOKENS = 16  # of the mover, in each of the two stretches before each order


@dataclass(frozen=True, slots=True)
class Stretch:
    """Milliseconds between the neighbours' tokens on one engine: twice before an order, and while it is carried out."""

    context: int
    engine: str  # "source" or "destination"
    first: list[float]
    second: list[float]
    during: list[float]


async def neighbours(client: EngineClient, options: argparse.Namespace) -> list[Stretch]:
    """Neighbours are made anew for each context, lest they grow without end."""
    found = []
    for context in options.contexts:
        names = {end: [f"{end}-{context}-{number}" for number in range(NEIGHBOURS)] for end in (FIRST, SECOND)}
        for engine, each in names.items():
            for name in each:
                await submit(client, engine, name, THEIR_CONTEXT)
        for number in range(options.runs + 1):
            source, destination = (FIRST, SECOND) if number % 2 == 0 else (SECOND, FIRST)
            stretches = await _beside(client, f"mover-{context}-{number}", context, (source, destination), names)
            found += stretches if number else []  # the first warms up
        await cancel(client, [*names[FIRST], *names[SECOND]])
    return found


async def _beside(
    client: EngineClient, mover: str, context: int, ends: tuple[str, str], names: dict[str, list[str]]
) -> list[Stretch]:
    await submit(client, ends[0], mover, context)
    await client.until(lambda: len(client.streams[mover]) >= 2 + 2 * QUIET_TOKENS)
    times, asked = client.token_times[mover], len(client.streams[mover])
    client.sockets.send(ends[0], Migrate(mover, ends[1], "measured"))
    await client.until(lambda: client.owners[mover] == ends[1])
    bounds = (times[1], times[1 + QUIET_TOKENS], times[asked - 1], times[-2])  # gaps before the first had the prefill
    for engine in ends:
        client.sockets.send(engine, Cancel(mover, Epoch(1, 10_000)))
    return [
        Stretch(context, what, *(_gaps_ms(client, names[engine], *span) for span in pairwise(bounds)))
        for what, engine in zip(("source", "destination"), ends, strict=True)
    ]


def _gaps_ms(client: EngineClient, names: Sequence[str], start: float, end: float) -> list[float]:
    """Gaps that end in an interval."""
    pairs = [pair for name in names for pair in pairwise(client.token_times[name])]
    return [1e3 * (later - earlier) for earlier, later in pairs if start < later <= end]


def slowdown(before: Sequence[list[float]], after: Sequence[list[float]]) -> float:
    """Mean gap after, in gaps of before; nan if a migration never took a step."""
    earlier, later = ([ms for one in stretches for ms in one] for stretches in (before, after))
    return statistics.fmean(later) / statistics.fmean(earlier) if earlier and later else float("nan")


def summary(found: Sequence[Stretch]) -> Iterator[tuple[str, ...]]:
    """Rows of each context and end: while a request moves, and while none does."""
    for context, engine in dict.fromkeys((one.context, one.engine) for one in found):
        mine = [one for one in found if (one.context, one.engine) == (context, engine)]
        second = [one.second for one in mine]
        moving = slowdown(second, [one.during for one in mine])
        resting = slowdown([one.first for one in mine], second)
        yield f"{context}", engine, f"{moving:.3f}", f"{resting:.3f}"


# --- the command ------------------------------------------------------------------------------------------------------

MEASURES: dict[str, Any] = {"handover": handover, "migration": migrations, "neighbours": neighbours}
DEFAULTS = {
    "handover": {"kv_memory": "64MiB", "runs": 9},
    "migration": {"contexts": (256, 512, 1024, 2048, 4096, 7936), "runs": 3},
    "neighbours": {"contexts": (512, 2048), "runs": 12},
}
MOVES = ("prompt tokens", "step, ms", "longest gap before", "at the change", "longest around", "all stages")


async def measure(topology: Topology, options: argparse.Namespace) -> Any:
    async with EngineClient(topology, DEADLINE_S).running() as client:
        await client.all_ready()
        return await MEASURES[options.what](client, options)


def show(what: str, found: Any) -> None:
    rows: list[tuple[str, ...]]
    if what == "handover":
        table = make_table("medians", ("",), ("",))
        rows = [(name, f"{value:.3f}") for name, value in found.items()]
    elif what == "migration":
        table, rows = make_table("ms", (), MOVES), [tuple(move.cells()) for move in found]
    else:
        table = make_table("gaps, in those before", ("prompt tokens", "end"), ("while one moves", "while none does"))
        rows = list(summary(found))
    for row in rows:
        table.add_row(*row)
    make_console().print(table)


def main() -> None:
    parser = script_parser("bench.transfer.pauses", __doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    for what, defaults in DEFAULTS.items():
        command = commands.add_parser(what)
        add_arguments(command)
        if what == "handover":
            command.add_argument("--prompt-tokens", type=int, default=512)
        else:
            command.add_argument("--contexts", type=number_list, metavar="N,...", help="prompt tokens")
        command.add_argument("--runs", type=int, help="of each")
        add_json(command)
        command.set_defaults(**defaults)
    options = parser.parse_args()
    with two_engines(options) as topology:
        found = asyncio.run(measure(topology, options))
    show(options.what, found)
    if options.json:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
