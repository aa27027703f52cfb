"""Engine processes and the least gateway that can drive them: for benches and tests that need no API."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from mesh.directory import directory
from mesh.sockets.sockets import Sockets
from mesh.supervisor.processes.command import ENGINE, child_commands
from mesh.topology.schema import Topology
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import GatewayMessage
from mesh.wire.requests import Delta, Failed, FinishReason, Refused, StepTokens
from mesh.wire.status import EngineStatus, GatewayStatus

BEAT_S = 0.1


@contextmanager
def engine_processes(topology: Topology) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The engines of a deployment, by id. They are killed in the end."""
    commands = [command for command in child_commands(topology, topology.hosts[0].name) if command.kind == ENGINE]
    processes = {one.process: subprocess.Popen(one.argv, env={**os.environ, **one.env}) for one in commands}
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


class EngineClient:
    """Collects what engines say of requests; keeps its lease alive by publishing a status."""

    def __init__(self, topology: Topology, deadline_s: float = 120.0) -> None:
        me = Sender(topology.gateways[0].id, time.time_ns() // 1_000_000)
        self.sockets: Sockets[GatewayMessage] = Sockets(me, directory(topology), GatewayMessage)
        self.statuses: dict[str, EngineStatus] = {}
        self.streams: dict[str, list[int]] = {}
        self.token_times: dict[str, list[float]] = {}  # when each token first came
        self.finished: dict[str, FinishReason] = {}
        self.owners: dict[str, str] = {}
        self.refusals: list[Refused] = []
        self._engines = [engine.id for engine in topology.engines]
        self._deadline_s = deadline_s
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["EngineClient"]:
        self.sockets.bind()
        self.sockets.subscribe(self._engines)
        async with asyncio.TaskGroup() as tasks:
            pumps = [tasks.create_task(pump) for pump in (self._messages(), self._statuses(), self._beat())]
            yield self
            for pump in pumps:
                pump.cancel()
        await self.sockets.close()

    async def _beat(self) -> None:
        status = GatewayStatus(1, ProcessState.READY, "local", os.getpid(), "", 0, 0)
        while True:
            self.sockets.publish(status)
            await asyncio.sleep(BEAT_S)

    async def _messages(self) -> None:
        async for sender, message, _ in self.sockets.messages():
            match message:
                case StepTokens(deltas):
                    for delta in deltas:
                        self._take(sender.process, delta)
                case Refused():
                    self.refusals.append(message)
                case Failed():
                    raise RuntimeError(f"{sender.process} failed {message.request}: {message.reason}")
            async with self._changed:
                self._changed.notify_all()

    def _take(self, engine: str, delta: Delta) -> None:
        stream = self.streams.setdefault(delta.request, [])
        stream[delta.offset :] = delta.tokens
        times = self.token_times.setdefault(delta.request, [])
        times += [time.perf_counter()] * (len(stream) - len(times))
        self.owners[delta.request] = engine
        if delta.finish is not None:
            self.finished[delta.request] = delta.finish

    async def _statuses(self) -> None:
        async for sender, status in self.sockets.broadcasts():
            if isinstance(status, EngineStatus):
                self.statuses[sender.process] = status
            async with self._changed:
                self._changed.notify_all()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until what was heard fulfils the condition. Raise `TimeoutError` at the deadline."""
        async with asyncio.timeout(self._deadline_s), self._changed:
            await self._changed.wait_for(lambda: bool(condition()))

    async def all_ready(self) -> None:
        await self.until(lambda: all(self.is_ready(engine) for engine in self._engines))

    def is_ready(self, engine: str) -> bool:
        return engine in self.statuses and self.statuses[engine].state is ProcessState.READY

    def is_idle(self, engine: str) -> bool:
        """Nothing runs, waits or is expected there, and every block is free."""
        status = self.statuses[engine]
        held = sum(service.num_blocks - service.num_free_blocks for service in status.services)
        return status.num_running == status.num_waiting == status.num_reserved == held == 0
