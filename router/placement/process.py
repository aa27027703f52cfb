"""The placement daemon's process: sockets and a clock around a `PlacementDaemon`."""

import asyncio
import os
from collections.abc import Iterable

import structlog

from mesh.addresses import gateway_names, supervisors
from mesh.membership.catching_up import catch_up
from mesh.membership.heartbeat import Heartbeat
from mesh.process.process import ProcessShell
from mesh.rules import PlacementMode
from mesh.sockets.sockets import Sockets
from mesh.wire.messages import SupervisorMessage
from mesh.wire.placement import PlacementStatus
from router.placement.daemon import PlacementDaemon
from router.placement.effects import Abandon, Ask, Effect, Note, Tell
from router.placement.search.evaluators import find_evaluators
from router.placement.search.question import Question
from router.placement.search.search_process import Searcher

MAX_LAG_S = 0.1  # of a timer; beyond it, statuses have been waiting to be read, and silence proves nothing

log = structlog.get_logger()


async def serve(shell: ProcessShell) -> None:
    """Serve until asked to stop. It stops at once: whatever it was doing, its successor goes on with it."""
    find_evaluators()
    sockets: Sockets[SupervisorMessage] = shell.sockets(SupervisorMessage)
    try:
        await DaemonProcess(shell, sockets).run()
    finally:
        await sockets.close()


class DaemonProcess:
    """The asyncio shell around a `PlacementDaemon`. Searches run in a process beside it."""

    def __init__(self, shell: ProcessShell, sockets: Sockets[SupervisorMessage]) -> None:
        topology = shell.topology
        assert topology.placement is not None, "the topology has a daemon"
        self._topology = topology
        self._searches_at_all = topology.placement.mode is not PlacementMode.OFF
        self._searcher = Searcher(topology.placement.workers)
        self._clock = shell.clock
        self._asked_to_stop = shell.drain
        self._sockets = sockets
        self._daemon = PlacementDaemon(topology, shell.clock.now(), pid=os.getpid())
        timing = topology.timing
        self._heartbeat = Heartbeat(sockets, self._status, timing.heartbeat_s, timing.status_gap_s)
        self._tasks = asyncio.TaskGroup()
        self._searches: dict[int, asyncio.Task[None]] = {}
        self._rearm = asyncio.Event()

    async def run(self) -> None:
        serving = {engine.id for engine in self._topology.engines} | set(gateway_names(self._topology))
        self._sockets.subscribe(serving | set(supervisors(self._topology).values()))
        try:
            async with self._tasks as tasks:
                jobs = (self._heartbeat.run(), self._hear(), self._follow(), self._keep_deadlines(), self._prepare())
                background = [tasks.create_task(job) for job in jobs]
                await self._asked_to_stop.wait()
                for task in (*background, *self._searches.values()):
                    task.cancel()
        finally:
            await self._searcher.close()

    def _status(self) -> PlacementStatus:
        return self._daemon.status(self._clock.now())

    async def _hear(self) -> None:
        async for sender, status in self._sockets.broadcasts():
            self._daemon.hear(sender, status, self._clock.now())

    async def _follow(self) -> None:
        """Follow hosts that move, which sockets do while messages are read. Nobody tells a daemon anything else."""
        async for received in self._sockets.messages():
            self._sockets.refuse(received.sender, received.message, "a placement daemon takes no orders")

    async def _keep_deadlines(self) -> None:
        while True:
            self._rearm.clear()
            delay_s = self._daemon.next_deadline() - self._clock.now()
            try:
                async with asyncio.timeout(max(0.0, delay_s)):
                    await self._rearm.wait()
            except TimeoutError:
                await catch_up(self._clock, self._daemon.next_deadline(), MAX_LAG_S)
                self._perform(self._daemon.expire(self._clock.now()))

    async def _prepare(self) -> None:
        """For the next search."""
        if self._searches_at_all:
            await self._searcher.start()

    async def _search(self, question: Question) -> None:
        answer = await self._searcher.search(question)
        self._perform(self._daemon.answered(question.number, answer, self._clock.now()))
        self._rearm.set()
        await self._prepare()

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Tell(process, order):
                    self._sockets.send(process, order)
                case Ask(question):
                    self._searches[question.number] = self._tasks.create_task(self._search(question))
                case Abandon(number):
                    self._searches[number].cancel()
                    self._tasks.create_task(self._prepare())
                case Note(line, is_problem):
                    (log.warning if is_problem else log.info)(line)
        self._searches = {number: task for number, task in self._searches.items() if not task.done()}
        if effects:
            self._heartbeat.poke()
