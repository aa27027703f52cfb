"""Client processes: started together, heard, stopped together."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from bench.load.generator.wire import Assignment, Batch, Go, frame, read_frame
from bench.load.results.outcome import Failure, Outcome
from mesh.errors import CommandError

READY_S = 60.0
AHEAD_S = 0.2  # from when all are ready to the start
END_S = 10.0  # after its last message


@dataclass(slots=True)
class Told:
    """All that a process said so far."""

    num_sent: int = 0
    num_ended: int = 0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0
    loop_lags_s: list[float] = field(default_factory=list)
    is_over: bool = False

    def take(self, batch: Batch) -> None:
        self.num_sent = batch.num_sent
        self.num_ended += len(batch.ended)
        self.cpu_s, self.elapsed_s = batch.cpu_s, batch.elapsed_s
        self.loop_lags_s += batch.loop_lags_s
        self.is_over = batch.is_last

    @property
    def cpu_share(self) -> float:
        return self.cpu_s / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(slots=True)
class Crew:
    """The processes of one run. ``told`` and ``outcomes`` grow while it runs; cancelled requests are not kept."""

    told: list[Told]
    outcomes: list[Outcome] = field(default_factory=list)
    num_cancelled: int = 0

    @property
    def num_sent(self) -> int:
        return sum(told.num_sent for told in self.told)

    @property
    def num_in_flight(self) -> int:
        return sum(told.num_sent - told.num_ended for told in self.told)

    @property
    def elapsed_s(self) -> float:
        return max((told.elapsed_s for told in self.told), default=0.0)

    def take(self, index: int, batch: Batch) -> None:
        self.told[index].take(batch)
        for outcome in batch.ended:
            if outcome.failure is Failure.CANCELLED:
                self.num_cancelled += 1
            else:
                self.outcomes.append(outcome)


async def drive(
    assignments: Sequence[Assignment], stop: asyncio.Event, heard: Callable[[Crew], None] = lambda crew: None
) -> Crew:
    """Run it all; return when every request has ended, or what was on its way after ``stop`` is cancelled.

    Raise `CommandError` if a process dies.
    """
    crew = Crew([Told() for _ in assignments])
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(_process()) for _ in assignments]
        for channel, assignment in zip(channels, assignments, strict=True):
            channel.writer.write(frame(assignment))
        for channel in channels:
            await channel.ready()
        go = frame(Go(time.monotonic() + AHEAD_S))
        for channel in channels:
            channel.writer.write(go)
        async with asyncio.TaskGroup() as group:
            stopper = group.create_task(_stop_all(channels, stop))
            await asyncio.gather(*(_listen(channel, index, crew, heard) for index, channel in enumerate(channels)))
            stopper.cancel()
    return crew


@dataclass(frozen=True, slots=True)
class _Channel:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> bytes:
        try:
            return await read_frame(self.reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise CommandError("a client process died; what it wrote is above") from None

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(READY_S):
                await self.frame()
        except TimeoutError:
            raise CommandError(f"a client process was not ready within {READY_S:g} s") from None


async def _listen(channel: _Channel, index: int, crew: Crew, heard: Callable[[Crew], None]) -> None:
    while not crew.told[index].is_over:
        crew.take(index, msgspec.msgpack.decode(await channel.frame(), type=Batch))
        heard(crew)


async def _stop_all(channels: Sequence[_Channel], stop: asyncio.Event) -> None:
    await stop.wait()
    for channel in channels:
        channel.writer.write_eof()


@asynccontextmanager
async def _process() -> AsyncIterator[_Channel]:
    """In a session of its own: Ctrl-C in a terminal is for the command, which stops it in good order."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.load.generator.worker", stdin=theirs.fileno(), start_new_session=True
        )
    try:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        yield _Channel(process, reader, writer)
        writer.close()
        async with asyncio.timeout(END_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
