"""Several engines in one process, each with its own sockets, core and threads, as if it were alone.

``python -m bench.gateway.engine_host TOPOLOGY ID [ID ...]``. For benches with more engines than memory has room for
processes.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from engines.process import serve
from mesh.process import logs
from mesh.process.incarnations import next_incarnation
from mesh.process.process import ProcessShell, make_runtime_dir
from mesh.topology.parse import load
from mesh.wire.frames import Sender


async def host(path: Path, engines: Sequence[str]) -> None:
    """Until asked to end."""
    topology = load(path)
    runtime = make_runtime_dir(topology)
    logs.configure(engines[0], topology.log_level, logs.log_file(runtime, engines[0]), logs.standard_terminal())
    drain, now_ms = asyncio.Event(), time.time_ns() // 1_000_000
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, drain.set)
    async with asyncio.TaskGroup() as tasks:
        for engine in engines:
            me = Sender(engine, next_incarnation(runtime, engine, now_ms))
            tasks.create_task(serve(ProcessShell(topology, me, drain=drain)))


if __name__ == "__main__":
    uvloop.run(host(Path(sys.argv[1]), sys.argv[2:]))
