"""The engine process: reads sockets, feeds the core, computes batches in one thread and copies blocks in another."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import structlog

from engines.admission.rights import why_not
from engines.core import EngineCore
from engines.costs.profiles import num_devices_of
from engines.effects import Copied, DropModel, Effect, ForgetBlocks, LoadModel, OffloadBlocks, RestoreBlocks
from engines.loading import Loaded, load
from engines.scheduling.batch import Batch, StepResult
from engines.scheduling.scheduler import Limits
from engines.settings import EngineSettings
from engines.step_failures.handling import FailedSteps
from engines.step_failures.stuck_steps import StepWatch
from kvtransfer.freed_memory import keep_freed_memory
from kvtransfer.gpu.device import MESSAGE_BYTES
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks, Send
from kvtransfer.protocol import Limits as TransferLimits
from kvtransfer.transports import Transport
from mesh.addresses import gateway_names, supervisors
from mesh.errors import UserError
from mesh.membership.catching_up import catch_up
from mesh.membership.heartbeat import Heartbeat
from mesh.membership.membership import Membership, Restarted, Stale, ended_incarnations
from mesh.process.garbage import spare_what_is_loaded
from mesh.process.process import ProcessShell
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import Probe
from mesh.wire.status import EngineStatus, SupervisorStatus

J = TypeVar("J")
T = TypeVar("T")

MAX_LAG_S = 0.1  # a deadline that is noticed later than this says more about this process than about its peers

log = structlog.get_logger()


def settings_of(topology: Topology, engine: EngineSpec) -> EngineSettings:
    return EngineSettings(
        id=engine.id,
        host=engine.host,
        pid=os.getpid(),
        role=engine.role,
        limits=Limits(engine.max_running, engine.chunk_tokens, slice_tokens=engine.slice_tokens),
        offload_bytes=engine.offload_memory_bytes,
        max_waiting=engine.max_waiting,
        transport=topology.transfer.transport,
        transfer_deadline_s=topology.transfer.deadline_s,
        usual={service.name: (service.usual_prompt, service.usual_answer) for service in topology.services},
        loadable=frozenset(service.name for service in topology.services),
        transfer_limits=TransferLimits(
            reply_s=topology.timing.reply_s,
            migration_share=topology.transfer.migration_share,
            migration_s=topology.transfer.migration_deadline_s,
            message_bytes=TransferLimits().message_bytes if engine.device == "cpu" else MESSAGE_BYTES,
        ),
        rescheduling=topology.rescheduling,
        scheduling=engine.scheduling,
        starvation_s=engine.starvation_s,
        strict_phases=engine.strict_phases,
        num_devices=num_devices_of(engine),
        weight_memory_bytes=engine.weight_memory_bytes,
    )


async def serve(shell: ProcessShell) -> None:
    """Be an engine: load, say that it is ready, serve until asked to drain, drain."""
    keep_freed_memory()
    engine = shell.topology.engine(shell.me.process)
    sockets: Sockets[EngineMessage] = shell.sockets(EngineMessage)
    compute = ThreadPoolExecutor(1, "compute")
    peers = PeerMemories()
    try:
        async with asyncio.TaskGroup() as tasks:
            starting = Heartbeat(sockets, lambda: starting_status(engine), shell.topology.timing.heartbeat_s)
            background = [tasks.create_task(starting.run()), tasks.create_task(leave_when_asked(shell))]
            loop = asyncio.get_running_loop()
            loaded = await loop.run_in_executor(compute, load, shell.topology, engine, peers)
            for task in background:
                task.cancel()
        spare_what_is_loaded()
        await EngineProcess(shell, engine, sockets, loaded, peers, compute).run()
    finally:
        compute.shutdown(wait=False, cancel_futures=True)
        await sockets.close()


async def leave_when_asked(shell: ProcessShell) -> None:
    """While starting: loading a model cannot be interrupted, and there is nothing yet that could be lost."""
    await shell.drain.wait()
    log.info("asked to stop before it was ready")
    os._exit(0)


def starting_status(engine: EngineSpec) -> EngineStatus:
    return EngineStatus(
        seq=0,
        state=ProcessState.STARTING,
        role=engine.role,
        host=engine.host,
        pid=os.getpid(),
        services=[],
        num_running=0,
        num_waiting=0,
        num_tokens=0,
        prefill_remaining_s=0.0,
        prefill_waiting_s=0.0,
        decode_step_s=0.0,
        min_slack_s=None,
    )


class EngineProcess:
    """``compute`` is the one thread that touches the models."""

    def __init__(
        self,
        shell: ProcessShell,
        engine: EngineSpec,
        sockets: Sockets[EngineMessage],
        loaded: Loaded,
        peers: PeerMemories,
        compute: ThreadPoolExecutor,
    ) -> None:
        topology = shell.topology
        self._drain = shell.drain
        self._drain_s = topology.timing.drain_s
        self._clock = shell.clock
        self._sockets = sockets
        self._loaded = loaded
        self._peers = peers
        self._compute = compute
        self._copy = ThreadPoolExecutor(1, "copy")
        self._loader = ThreadPoolExecutor(1, "load")
        self._gateways = set(gateway_names(topology))
        self._neighbours = self._gateways | {spec.id for spec in topology.engines if spec.id != engine.id}
        self._unfollowed = self._neighbours - self._gateways
        self._supervisor_of = supervisors(topology)
        self._supervisors = frozenset(self._supervisor_of.values())
        self._membership = Membership(topology.timing.lease_s)
        self._core = EngineCore(settings_of(topology, engine), loaded.services, peers.can_open, self._membership.expect)
        self._heartbeat = Heartbeat(sockets, self._status, topology.timing.heartbeat_s)
        self._watch = StepWatch(longest_gap_s=1.25 * topology.timing.heartbeat_s)
        self._is_stuck = False
        self._failures = FailedSteps(lambda: loaded.executor, compute)
        self._copies = asyncio.TaskGroup()
        # All are set after every event: who waits looks for itself whether there is something to do.
        self._may_compute, self._may_rearm, self._may_be_idle = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        self._sockets.subscribe({*self._gateways, *self._supervisors})
        self._follow_all_if_needed()
        log.info("ready", role=self._core.role, services=list(self._loaded.services))
        try:
            async with self._copies as tasks:
                pumps = (
                    self._heartbeat.run(),
                    self._hear_messages(),
                    self._hear_broadcasts(),
                    self._keep_deadlines(),
                    self._compute_batches(),
                )
                background = [tasks.create_task(pump) for pump in pumps]
                await self._drained()
                for task in background:
                    task.cancel()
        finally:
            for threads in (self._copy, self._loader):
                threads.shutdown(wait=False, cancel_futures=True)

    def _status(self) -> EngineStatus:
        now = self._clock.now()
        status, hang = self._core.status(now), self._watch.look(now)
        if hang is not None and not self._is_stuck:
            log.error("stuck", reason=hang)
        elif hang is None and self._is_stuck:
            log.warning("not stuck any more")
        self._is_stuck = hang is not None
        return status if hang is None else msgspec.structs.replace(status, state=ProcessState.STUCK, error=hang)

    # --- what happens -------------------------------------------------------------------------------------------------

    async def _hear_messages(self) -> None:
        async for sender, message, payload in self._sockets.messages():
            now = self._clock.now()
            if (reason := why_not(sender.process, message, self._gateways)) is not None:
                self._sockets.refuse(sender, message, reason)
                continue
            self._follow(sender.process)
            is_visitor = sender.process not in self._neighbours  # a command: it has no lease to keep
            if is_visitor or self._observe(sender, now):
                frames = [frame.buffer for frame in payload]
                effects = self._core.receive(sender.process, message, frames, now)
                if effects or not isinstance(message, Probe):  # a question changes nothing that others should hear of
                    self._perform(effects)

    async def _hear_broadcasts(self) -> None:
        async for sender, status in self._sockets.beacons(self._reads):
            if isinstance(status, SupervisorStatus):
                self._declare_dead(sender.process, status)
                continue
            now = self._clock.now()
            if not self._observe(sender, now) or not isinstance(status, EngineStatus):
                continue
            effects = self._core.look(now) if self._core.observe(sender.process, status, now) else []
            if effects:  # else each status would make this engine publish its own
                self._perform(effects)

    def _follow(self, process: str) -> None:
        """Hear the statuses of an engine that this one has to do with, from now on: it might die.

        Were each engine to hear all others, statuses would grow with the square of their number.
        """
        if process in self._unfollowed:
            self._unfollowed.remove(process)
            self._sockets.subscribe([process])

    def _follow_all_if_needed(self) -> None:
        if self._unfollowed and self._core.looks_at_peers:
            for process in list(self._unfollowed):
                self._follow(process)

    def _reads(self, process: str) -> bool:
        """Whether its statuses tell this engine more than that it lives."""
        return process in self._supervisors or self._core.looks_at_peers

    def _observe(self, sender: Sender, now: float) -> bool:
        """A sign of life; False if it is of a life that is over."""
        observation = self._membership.observe(sender, now)
        if isinstance(observation, Restarted):
            self._sockets.forget(sender.process)
            self._lose(sender.process, now)
        return not isinstance(observation, Stale)

    def _declare_dead(self, supervisor: str, status: SupervisorStatus) -> None:
        """A supervisor saw processes end: nobody waits for their leases."""
        for ended in ended_incarnations(supervisor, status, self._supervisor_of):
            if lost := self._membership.declare_dead(ended):
                self._sockets.forget(lost.sender.process)
                self._lose(lost.sender.process, self._clock.now())

    def _lose(self, process: str, now: float) -> None:
        log.warning("lost a peer", process=process)
        self._peers.forget(process)
        self._perform(self._core.lose_peer(process, now))

    async def _keep_deadlines(self) -> None:
        while True:
            self._may_rearm.clear()
            deadlines = [self._core.next_deadline(), self._membership.next_deadline()]
            next_deadline = min((deadline for deadline in deadlines if deadline is not None), default=None)
            delay_s = None if next_deadline is None else max(next_deadline - self._clock.now(), 0.0)
            try:
                async with asyncio.timeout(delay_s):
                    await self._may_rearm.wait()
            except TimeoutError:
                if next_deadline is not None:
                    await catch_up(self._clock, next_deadline, MAX_LAG_S)
                self._expire(self._clock.now())

    def _expire(self, now: float) -> None:
        for lost in self._membership.expire(now):
            if lost.sender.process not in self._gateways:  # one that only fell silent still wants its tokens
                self._sockets.forget(lost.sender.process)
            self._lose(lost.sender.process, now)
        self._perform(self._core.expire(now))

    async def _compute_batches(self) -> None:
        while True:
            self._may_compute.clear()
            batch, effects = self._core.next_batch(self._clock.now())
            if effects:
                self._perform(effects)
            if batch is None:
                await self._may_compute.wait()
                continue
            try:
                result = await self._execute(batch)
            except Exception as error:
                log.exception("a step failed")
                await self._failures.failed(batch, error)
                self._perform(self._core.fail_step(f"the engine could not compute it: {error}", self._clock.now()))
            else:
                self._failures.computed()
                self._perform(self._core.finish_step(result, self._clock.now()))

    async def _execute(self, batch: Batch) -> StepResult:
        service = self._loaded.services[batch.service]
        self._watch.start(batch.service, lambda: service.step_cost().elapsed_s(batch), self._clock.now())
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._compute, self._loaded.executor.execute, batch)
        finally:
            self._watch.end(self._clock.now())

    async def _drained(self) -> None:
        """Wait until asked to drain, then until all that is here has ended or the time for it is over."""
        await self._drain.wait()
        self._perform(self._core.drain(self._clock.now()))
        self._heartbeat.poke()
        try:
            async with asyncio.timeout(self._drain_s):
                while not self._core.is_idle:
                    self._may_be_idle.clear()
                    await self._may_be_idle.wait()
        except TimeoutError:
            log.warning("draining took too long: dropped what was left", core=repr(self._core))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._follow(effect.to)
                    self._sockets.send(effect.to, effect.message, effect.payload)
                case ExportBlocks():
                    self._copies.create_task(self._export(effect, self._loaded.transports[effect.service]))
                case ImportBlocks():
                    self._copies.create_task(self._import(effect, self._loaded.transports[effect.service]))
                case OffloadBlocks():
                    self._copies.create_task(self._offload(effect))
                case RestoreBlocks():
                    self._copies.create_task(self._restore(effect))
                case ForgetBlocks():
                    self._loaded.offloaded[effect.service].forget(effect.ticket)
                case LoadModel():
                    self._copies.create_task(self._load(effect.service))
                case DropModel():
                    self._loaded.drop(effect.service)
        self._follow_all_if_needed()
        for event in (self._may_compute, self._may_rearm, self._may_be_idle):
            event.set()
        if self._core.has_news:  # told once the next batch is chosen: others hear of it, too
            self._heartbeat.poke()

    async def _export(self, job: ExportBlocks, transports: Mapping[str, Transport]) -> None:
        exported = await self._in_copy_thread(transports[job.transport].export_blocks, job)
        self._perform(self._core.exported(job.transfer, exported, self._clock.now()))

    async def _import(self, job: ImportBlocks, transports: Mapping[str, Transport]) -> None:
        imported = await self._in_copy_thread(transports[job.transport].import_blocks, job)
        self._perform(self._core.imported(job.transfer, imported, self._clock.now()))

    async def _offload(self, job: OffloadBlocks) -> None:
        kept = self._loaded.offloaded[job.service]
        copied = await self._copied(job.ticket, lambda: kept.keep(job.ticket, job.blocks))
        self._perform(self._core.offloaded(copied, self._clock.now()))

    async def _restore(self, job: RestoreBlocks) -> None:
        kept = self._loaded.offloaded[job.service]
        copied = await self._copied(job.ticket, lambda: kept.restore(job.ticket, job.first, job.blocks))
        self._perform(self._core.restored(copied, self._clock.now()))

    async def _copied(self, ticket: int, copy: Callable[[], None]) -> Copied:
        """Whatever goes wrong, serving goes on: the request is computed again."""
        started = self._clock.now()
        try:
            await asyncio.get_running_loop().run_in_executor(self._copy, copy)
        except Exception:
            log.exception("KV of a offloaded request could not be copied")
            return Copied(ticket, ok=False, elapsed_s=self._clock.now() - started)
        return Copied(ticket, ok=True, elapsed_s=self._clock.now() - started)

    async def _load(self, name: str) -> None:
        """Beside what is computed; whatever goes wrong, serving goes on."""
        try:
            model = await asyncio.get_running_loop().run_in_executor(self._loader, self._loaded.fetch, name)
        except UserError as error:
            self._perform(self._core.not_loaded(name, str(error), self._clock.now()))
        except Exception as error:
            log.exception("a service could not be loaded", service=name)
            self._perform(self._core.not_loaded(name, f"{type(error).__name__}: {error}", self._clock.now()))
        else:
            self._perform(self._core.loaded(self._loaded.open(name, model), self._clock.now()))

    async def _in_copy_thread(self, work: Callable[[J], T], job: J) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._copy, work, job)
