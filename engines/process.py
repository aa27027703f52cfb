"""The engine process: sockets, threads and a clock around an `EngineNode`, and a `match` over its effects."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import structlog

from engines.core import EngineCore
from engines.costs.named_profiles import num_devices_of
from engines.effects import (
    CloseMemory,
    Compute,
    Copied,
    DropAdapter,
    DropModel,
    DropWeights,
    EndTurn,
    Exit,
    ForgetBlocks,
    LoadAdapter,
    LoadBlocks,
    Loading,
    LoadModel,
    NodeEffect,
    OffloadBlocks,
    Recover,
    Refuse,
    RestoreBlocks,
    StageModel,
    StopLoading,
    StoreBlocks,
    UnstageModel,
)
from engines.loading import Loaded, load
from engines.metrics.serving import EngineMetrics
from engines.node import EngineNode
from engines.scheduling.batch import Batch, StepResult
from engines.scheduling.step import Step
from engines.settings import EngineSettings
from engines.status import starting_status
from engines.step_failures.errors import classify
from engines.threads.board import ThreadBoard, open_board
from engines.tiers.jobs import TierJobs
from kvtransfer.freed_memory import keep_freed_memory
from kvtransfer.gpu.device import MESSAGE_BYTES
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks, Send, TransferLimits
from kvtransfer.tiers.tier import BlocksLoaded, BlocksStored
from kvtransfer.transports import Transport
from mesh.effects import Follow, Forget, Publish, Rest
from mesh.errors import EXIT_FAILURE, UserError
from mesh.membership.heartbeat import Heartbeat
from mesh.membership.pulse import Pulse
from mesh.process.garbage import spare_what_is_loaded
from mesh.process.process import ProcessShell, first_line
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.control import LoadService, StageService
from mesh.wire.messages import EngineMessage

J = TypeVar("J")
T = TypeVar("T")

log = structlog.get_logger()


def settings_of(topology: Topology, engine: EngineSpec, metrics_url: str = "") -> EngineSettings:
    """Return the settings of a real engine: any service of the topology may be loaded."""
    return EngineSettings.of(
        topology,
        engine,
        pid=os.getpid(),
        message_bytes=TransferLimits().message_bytes if engine.device == "cpu" else MESSAGE_BYTES,
        num_devices=num_devices_of(engine),
        loadable=frozenset(service.name for service in topology.services),
        metrics_url=metrics_url,
    )


async def serve(shell: ProcessShell) -> None:
    """Be an engine: load, say that it is ready, serve until asked to drain, drain."""
    keep_freed_memory()
    engine = shell.topology.engine(shell.me.process)
    sockets: Sockets[EngineMessage] = shell.sockets(EngineMessage)
    compute = ThreadPoolExecutor(1, "compute")
    peers = PeerMemories()
    board = open_board(shell.topology, engine, shell.runtime)  # it works until it is ready
    try:
        async with asyncio.TaskGroup() as tasks:
            timing = shell.topology.timing
            starting = Heartbeat(sockets, lambda: starting_status(engine), timing.heartbeat_s, timing.status_gap_s)
            background = [tasks.create_task(starting.run()), tasks.create_task(leave_when_asked(shell))]
            loop = asyncio.get_running_loop()
            loaded = await loop.run_in_executor(compute, load, shell.topology, engine, peers)
            for task in background:
                task.cancel()
        spare_what_is_loaded()
        if board is not None:
            loaded.use_threads(board.num_threads)
            board.rest()
        await EngineProcess(shell, engine, sockets, loaded, peers, compute, board).run()
    finally:
        compute.shutdown(wait=False, cancel_futures=True)
        await sockets.close()


async def leave_when_asked(shell: ProcessShell) -> None:
    """While starting: loading a model cannot be interrupted, and there is nothing yet that could be lost."""
    await shell.drain.wait()
    log.info("asked to stop before it was ready")
    os._exit(0)


class EngineProcess:
    """The shell of an engine: sockets, threads and a clock. ``compute`` is the one thread that touches the models."""

    def __init__(
        self,
        shell: ProcessShell,
        engine: EngineSpec,
        sockets: Sockets[EngineMessage],
        loaded: Loaded,
        peers: PeerMemories,
        compute: ThreadPoolExecutor,
        board: ThreadBoard | None = None,
    ) -> None:
        topology = shell.topology
        self._drain = shell.drain
        self._clock = shell.clock
        self._heartbeat_s = topology.timing.heartbeat_s
        self._sockets = sockets
        self._loaded = loaded
        self._peers = peers
        self._compute_thread = compute
        self._copy_thread = ThreadPoolExecutor(1, "copy")
        self._load_thread = ThreadPoolExecutor(1, "load")
        self._board = board
        self._tier_jobs = TierJobs()
        self._metrics = EngineMetrics(shell, engine, sockets.counters)
        core = EngineCore(settings_of(topology, engine, self._metrics.url), loaded.services, peers.can_open)
        self._node = EngineNode(core, topology, engine.id, topology.timing.lease_s)
        self._tasks = asyncio.TaskGroup()
        self._pulse: Pulse | None = None
        self._armed_at: float | None = None
        self._running: asyncio.Task[None] | None = None  # the step that was begun last
        self._may_rearm, self._turn_ends, self._rests = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def __repr__(self) -> str:
        return f"<EngineProcess {self._node!r}>"

    async def run(self) -> None:
        """Serve until the node rests, after somebody asked the process to drain."""
        self._pulse = Pulse(self._sockets.pulse, self._heartbeat_s)
        log.info("ready", role=self._node.core.role, services=list(self._loaded.services))
        try:
            async with self._tasks as tasks:
                self._carry_out(self._node.start(self._clock.now()))
                pumps = (
                    self._take_messages(),
                    self._take_statuses(),
                    self._welcome(),
                    self._run_timers(),
                    self._end_turns(),
                    self._drain_when_asked(),
                    self._metrics.run(),
                )
                background = [tasks.create_task(pump) for pump in pumps]
                await self._rests.wait()
                for task in (*background, *([] if self._running is None else [self._running])):
                    task.cancel()
        finally:
            self._pulse.stop()
            for threads in (self._copy_thread, self._load_thread):
                threads.shutdown(wait=False, cancel_futures=True)
            self._tier_jobs.close()

    # --- events -------------------------------------------------------------------------------------------------------

    async def _take_messages(self) -> None:
        async for sender, message, payload in self._sockets.messages():
            if isinstance(message, LoadService | StageService):
                self._node.offer(self._loaded.learn(message.service))
            frames = [frame.buffer for frame in payload]
            self._carry_out(self._node.receive(sender, message, frames, self._clock.now()))

    async def _take_statuses(self) -> None:
        async for sender, status in self._sockets.beacons(self._node.reads):
            self._carry_out(self._node.hear(sender, status, self._clock.now()))

    async def _welcome(self) -> None:
        async for _ in self._sockets.subscribers():
            self._carry_out(self._node.welcome(self._clock.now()))

    async def _drain_when_asked(self) -> None:
        await self._drain.wait()
        self._carry_out(self._node.drain(self._clock.now()))

    async def _run_timers(self) -> None:
        while True:
            self._may_rearm.clear()
            self._armed_at = self._node.next_deadline()
            delay_s = None if self._armed_at is None else max(self._armed_at - self._clock.now(), 0.0)
            try:
                async with asyncio.timeout(delay_s):
                    await self._may_rearm.wait()
            except TimeoutError:
                self._carry_out(self._node.expire(self._clock.now()))

    async def _end_turns(self) -> None:
        while True:
            await self._turn_ends.wait()
            self._turn_ends.clear()
            self._carry_out(self._node.end_turn(self._clock.now()))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[NodeEffect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._sockets.send(effect.to, effect.message, effect.payload)
                case Compute(step):
                    self._running = self._tasks.create_task(self._finish(step, self._compute(step.batch())))
                case EndTurn():
                    self._turn_ends.set()
                case Publish():
                    self._publish()
                case ExportBlocks() | ImportBlocks() | OffloadBlocks() | RestoreBlocks():
                    self._tasks.create_task(self._copy(effect))
                case StoreBlocks() | LoadBlocks() | StopLoading():
                    self._carry_out_in_tiers(effect)
                case _:
                    self._carry_out_rare(effect)
        deadline = self._node.next_deadline()
        if deadline is not None and (self._armed_at is None or deadline < self._armed_at):
            self._may_rearm.set()

    def _carry_out_rare(self, effect: NodeEffect) -> None:
        match effect:
            case Follow(processes):
                self._sockets.subscribe(processes)
            case Forget(process):
                self._sockets.forget(process)
            case CloseMemory(process):
                self._peers.forget(process)
            case Refuse(sender, message, reason):
                self._sockets.refuse(sender, message, reason)
            case ForgetBlocks(ticket, service):
                self._loaded.offloaded[service].forget(ticket)
            case LoadModel() | StageModel() | LoadAdapter():
                self._tasks.create_task(self._load(effect))
            case DropWeights() | DropModel() | UnstageModel() | DropAdapter():
                self._loaded.let_go(effect)
            case Recover(frees_memory):
                self._tasks.create_task(self._recover(frees_memory=frees_memory))
            case Exit(reason):
                end_at_once(reason)
            case Rest():
                self._rests.set()

    def _publish(self) -> None:
        if self._pulse is not None:
            self._pulse.sign()
        self._metrics.status = status = self._node.status(self._clock.now())
        self._sockets.publish(status)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _compute(self, batch: Batch) -> "asyncio.Future[StepResult]":
        """Let it begin at once: the executor is not to wait for the next turn of the event loop."""
        if self._board is not None:
            self._board.work()
        return asyncio.get_running_loop().run_in_executor(self._compute_thread, self._loaded.executor.execute, batch)

    async def _finish(self, step: Step, computed: "asyncio.Future[StepResult]") -> None:
        try:
            result = await computed
        except Exception as error:
            log.exception("a step failed")
            self._carry_out(self._node.fail_step(classify(error), str(error), first_line(error)))
        else:
            now = self._clock.now()
            self._metrics.steps.computed(step, now)
            self._carry_out(self._node.finish_step(result, now))
        if self._board is not None and self._running is asyncio.current_task():  # no other step has begun
            self._board.rest()

    async def _recover(self, *, frees_memory: bool) -> None:
        """Faults of kernels show when their device is waited for, at the latest."""
        recover = partial(self._loaded.executor.recover, frees_memory=frees_memory)
        try:
            await asyncio.get_running_loop().run_in_executor(self._compute_thread, recover)
        except Exception:
            log.exception("the device does not go on after a step that failed")
            self._carry_out(self._node.not_recovered())
        else:
            self._carry_out(self._node.recovered(self._clock.now()))

    # --- copies and loads ---------------------------------------------------------------------------------------------

    async def _copy(self, job: ExportBlocks | ImportBlocks | OffloadBlocks | RestoreBlocks) -> None:
        match job:
            case ExportBlocks():
                exported = await self._in_thread(self._copy_thread, self._transport(job).export_blocks, job)
                self._carry_out(self._node.exported(job.transfer, exported, self._clock.now()))
            case ImportBlocks():
                imported = await self._in_thread(self._copy_thread, self._transport(job).import_blocks, job)
                self._carry_out(self._node.imported(job.transfer, imported, self._clock.now()))
            case OffloadBlocks():
                kept = self._loaded.offloaded[job.service]
                copied = await self._copied(job.ticket, lambda: kept.keep(job.ticket, job.blocks))
                self._carry_out(self._node.offloaded(copied, self._clock.now()))
            case RestoreBlocks():
                kept = self._loaded.offloaded[job.service]
                copied = await self._copied(job.ticket, lambda: kept.restore(job.ticket, job.first, job.blocks))
                self._carry_out(self._node.restored(copied, self._clock.now()))

    def _transport(self, job: ExportBlocks | ImportBlocks) -> Transport:
        transports: Mapping[str, Transport] = self._loaded.transports[job.service]
        return transports[job.transport]

    async def _copied(self, ticket: int, copy: Callable[[], None]) -> Copied:
        """Whatever goes wrong, serving goes on: the request is computed again."""
        started = self._clock.now()
        try:
            await asyncio.get_running_loop().run_in_executor(self._copy_thread, copy)
        except Exception:
            log.exception("KV of an offloaded request could not be copied")
            return Copied(ticket, ok=False, elapsed_s=self._clock.now() - started)
        return Copied(ticket, ok=True, elapsed_s=self._clock.now() - started)

    def _carry_out_in_tiers(self, effect: StoreBlocks | LoadBlocks | StopLoading) -> None:
        if isinstance(effect, StopLoading) and effect.service not in self._loaded.tiered:
            return  # its service was unloaded meanwhile
        tiers = self._loaded.tiered[effect.service]
        match effect:
            case StoreBlocks(blocks=blocks):
                generations = tiers.generations(blocks)  # as they are now, before anything else happens
                self._tasks.create_task(self._store(self._tier_jobs.store(tiers, effect, generations)))
            case LoadBlocks(ticket):
                tiers.open_load(ticket)
                self._tasks.create_task(self._load_blocks(ticket, self._tier_jobs.load(tiers, effect)))
            case StopLoading(ticket):
                tiers.stop(ticket)

    async def _store(self, stored: Awaitable[BlocksStored]) -> None:
        self._carry_out(self._node.stored(await stored, self._clock.now()))

    async def _load_blocks(self, ticket: int, loaded: Awaitable[BlocksLoaded]) -> None:
        self._carry_out(self._node.blocks_loaded(ticket, await loaded, self._clock.now()))

    async def _load(self, job: Loading) -> None:
        """Beside what is computed; whatever goes wrong, serving goes on."""
        try:
            fetched = await self._in_thread(self._load_thread, self._loaded.fetch, job)
        except Exception as error:
            reason = str(error)
            if not isinstance(error, UserError):
                log.exception("could not be loaded", job=job)
                reason = f"{type(error).__name__}: {error}"
            self._carry_out(self._node.not_loaded(job, reason, self._clock.now()))
        else:
            result = fetched if isinstance(fetched, int) else self._loaded.open(job.service, fetched)
            self._carry_out(self._node.loaded(job, result, self._clock.now()))

    async def _in_thread(self, thread: ThreadPoolExecutor, work: Callable[[J], T], job: J) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, work, job)


def end_at_once(reason: str) -> None:
    """Calls of a device that is lost may not return; the supervisor tells the others and starts a new process."""
    log.critical("ends", reason=reason)
    sys.stderr.write(f"ended: {reason}\n")
    sys.stderr.flush()
    os._exit(EXIT_FAILURE)
