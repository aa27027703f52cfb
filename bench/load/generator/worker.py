"""A client process: its standard input is a socket that brings its assignment and takes what happens.

It begins when it is told to, and stops when nothing more can come. Imports little, so that it takes little of the
machine that it loads.
"""

import asyncio
import socket
import sys
import time
from contextlib import suppress

import msgspec
import uvloop

from bench.load.client.http import HttpClient
from bench.load.generator.driver import Driver
from bench.load.generator.watch import watch_loop
from bench.load.generator.wire import Assignment, Batch, Go, frame, read_frame
from bench.load.results.outcome import Outcome

TELL_S = 0.2


class Worker:
    def __init__(self, assignment: Assignment, output: asyncio.StreamWriter) -> None:
        self._client = HttpClient(assignment.address, assignment.headers)
        self._driver = Driver(assignment, self._client, self._has_ended)
        self._output = output
        self._ended: list[Outcome] = []
        self._loop_lags_s: list[float] = []
        self._start_at, self._start_cpu_s = 0.0, 0.0

    async def run(self, start_at: float, stop: asyncio.Event) -> None:
        self._start_at, self._start_cpu_s = start_at, time.process_time()
        helpers = [asyncio.create_task(watch_loop(self._late)), asyncio.create_task(self._tell_on())]
        try:
            await self._driver.run(start_at, stop)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        self._tell(is_last=True)
        await self._output.drain()
        await self._client.close()

    def _has_ended(self, outcome: Outcome) -> None:
        self._ended.append(outcome)

    def _late(self, lag_s: float) -> None:
        if time.monotonic() > self._start_at:
            self._loop_lags_s.append(lag_s)

    async def _tell_on(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            self._tell()
            await self._output.drain()

    def _tell(self, *, is_last: bool = False) -> None:
        batch = Batch(
            self._driver.num_sent,
            self._ended,
            self._loop_lags_s,
            time.process_time() - self._start_cpu_s,
            max(0.0, time.monotonic() - self._start_at),
            is_last,
        )
        self._ended, self._loop_lags_s = [], []
        self._output.write(frame(batch))


async def serve() -> None:
    """Assignment in, ``Go`` in, batches out: on the socket that is standard input."""
    channel = socket.socket(fileno=sys.stdin.fileno())
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    worker = Worker(msgspec.msgpack.decode(await read_frame(reader), type=Assignment), writer)
    writer.write(frame(Go(0.0)))  # ready
    go = msgspec.msgpack.decode(await read_frame(reader), type=Go)
    stop = asyncio.Event()
    watcher = asyncio.create_task(_until_end(reader, stop))
    await worker.run(go.at, stop)
    watcher.cancel()
    writer.close()
    await writer.wait_closed()


async def _until_end(reader: asyncio.StreamReader, stop: asyncio.Event) -> None:
    await reader.read(-1)
    stop.set()


def main() -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):  # whoever started it is gone
        uvloop.run(serve())


if __name__ == "__main__":
    main()
