"""The shell around an `EngineNode` in virtual time: what `engines.process` does with sockets, threads and a clock."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Final

from engines.core import EngineCore
from engines.effects import (
    Compute,
    Copied,
    DropAdapter,
    DropModel,
    DropWeights,
    EndTurn,
    Exit,
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
from engines.node import EngineNode
from engines.scheduling.batch import StepResult
from engines.scheduling.step import Step
from engines.step_failures.errors import StepError
from kvtransfer.protocol import ExportBlocks, Exported, ImportBlocks, Imported, Send
from kvtransfer.tiers.tier import BlocksStored
from mesh.effects import Follow, Forget, Publish, Rest
from mesh.errors import UserError
from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage, EngineMessage
from mesh.wire.requests import Probe
from mesh.wire.transfers import Blocks, Taken
from simulation.engines.coasting import Coast
from simulation.engines.hardware import SharedHardware, StepWork
from simulation.engines.models import SimulatedModels
from simulation.engines.sampling import TOKEN_ID, TokenSampler
from simulation.engines.steps import StepModel
from simulation.engines.tiers import SimulatedTiers
from simulation.engines.transfer_times import Copier
from simulation.faults.engine_failures import EngineFailures
from simulation.kernel import Kernel
from simulation.network import Network

FAULT = "a fault that was asked for"
UNTOUCHING: Final = frozenset([Blocks, Probe, Taken])  # messages that neither change what runs nor ask how far it is


class SimulatedEngine:
    """One incarnation of an engine. Engines of one ``host`` slow each other.

    With ``coasts``, decode steps that change nothing but the number of tokens are passed by in one event, and most of
    their tokens are delivered later. Times, statuses and decisions stay the same. ``on_end`` is called when the process
    may end, ``on_crash`` when it must.
    """

    def __init__(
        self,
        me: Sender,
        node: EngineNode,
        models: SimulatedModels,
        kernel: Kernel,
        network: Network,
        host: SharedHardware | None = None,
        *,
        coasts: bool,
    ) -> None:
        self.on_end: Callable[[], None] = _stay
        self.on_crash: Callable[[], None] = _stay
        self._me = me
        self._node = node
        self.core: Final[EngineCore] = node.core  # which decides what becomes of its requests
        self._models = models
        self._kernel = kernel
        self._network = network
        self._host = host
        self._coasts = coasts
        self._coast: Coast | None = None
        random = kernel.random(f"masks of {me.process}@{me.incarnation}")
        self._sampler = TokenSampler(models.late_masks, models.forced_tokens, models.draft_acceptance, random)
        self._drafting_s: Sequence[float] = ()  # of the running step
        self._num_started = 0  # steps, and coasts that were cut short
        self._followed: set[str] = set()
        self._armed_at = inf
        self._copier, self._storer, self._tier_loader = Copier(kernel), Copier(kernel), Copier(kernel)
        self._loads_until = -inf  # when the loader is done with all that it was told
        self.failures: Final = EngineFailures(kernel, me)
        self._kept: deque[tuple[Sender, EngineMessage]] = deque()  # came after the next iteration had been planned
        network.hear(me.process, self.receive if models.request_s == 0.0 else self._receive_late)
        network.greet(me.process, self.welcome)

    def __repr__(self) -> str:
        return f"<SimulatedEngine {self._node!r}{' computing' * self._node.computes}>"

    def start(self, at: float) -> None:
        """Be ready at that time, and publish the first status."""
        self._kernel.at(at, self._start)

    def _start(self) -> None:
        self._carry_out(self._node.start(self._kernel.now))

    def set_pace(self, pace: float) -> None:
        """Let its steps take so many times as long as modelled, from the next one (or the next coast) on."""
        self._models.set_pace(pace)

    # --- what happens -------------------------------------------------------------------------------------------------

    def _receive_late(self, sender: Sender, message: EngineMessage) -> None:
        """All messages stay in their order, as none passes a request that it is about."""
        self._kernel.after(self._models.request_s, self.receive, sender, message)

    def receive(self, sender: Sender, message: EngineMessage) -> None:
        if type(message) not in UNTOUCHING:
            self._catch_up()
        if self._models.plans_ahead and self._node.computes:
            self._kept.append((sender, message))
            if self._coast is not None and self._coast.num_left:
                self._kernel.at(self._coast.end_of_next(1), self._pass_one, self._coast)
        else:
            self._carry_out(self._node.receive(sender, message, (), self._kernel.now))

    def _pass_one(self, coast: Coast) -> None:
        """One step of a coast has ended, and others run, unless it was cut short: then its end is noted by itself."""
        if coast is self._coast and self._kernel.now < coast.last_end:
            self._catch_up()
            self._take_kept()

    def _take_kept(self) -> None:
        while self._kept:
            self._carry_out(self._node.receive(*self._kept.popleft(), (), self._kernel.now))

    def hear(self, sender: Sender, status: BroadcastMessage | None) -> None:
        """Somebody's status, which is followed or not; None: a sign of life."""
        if sender.process in self._followed:
            self._catch_up()
            effects = self._node.hear(sender, status, self._kernel.now)
            if effects or self._armed_at == inf:  # a mere sign of life puts a deadline off: what is armed looks again
                self._carry_out(effects)

    def welcome(self) -> None:
        """Somebody follows its statuses from now on."""
        self._carry_out(self._node.welcome(self._kernel.now))

    def drain(self) -> None:
        """It was asked to end."""
        self._catch_up()
        self._carry_out(self._node.drain(self._kernel.now))

    def _exported(self, job: ExportBlocks) -> None:
        self._catch_up()
        event = Exported(job.seq, [0] * len(job.blocks), [], ())
        self._carry_out(self._node.exported(job.transfer, event, self._kernel.now))

    def _imported(self, job: ImportBlocks) -> None:
        self._catch_up()
        event = Imported(job.message.seq, ok=True, elapsed_s=self._copy_s(job))
        self._carry_out(self._node.imported(job.transfer, event, self._kernel.now))

    def _offloaded(self, job: OffloadBlocks, since: float) -> None:
        self._catch_up()
        copied = Copied(job.ticket, ok=True, elapsed_s=self._kernel.now - since)
        self._carry_out(self._node.offloaded(copied, self._kernel.now))

    def _restored(self, job: RestoreBlocks, since: float) -> None:
        self._catch_up()
        copied = Copied(job.ticket, ok=True, elapsed_s=self._kernel.now - since)
        self._carry_out(self._node.restored(copied, self._kernel.now))

    def _expire(self, when: float) -> None:
        if when != self._armed_at:
            return
        self._armed_at = inf
        deadline = self._node.next_deadline()
        if deadline is None or deadline > self._kernel.now:
            self._arm(deadline)  # what was to be answered was
        else:
            self._catch_up()
            self._carry_out(self._node.expire(self._kernel.now))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[NodeEffect]) -> None:
        coast = self._coast
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._network.send(self._me.process, to, message)
                case Compute(step):
                    self._compute(step)
                case EndTurn():
                    self._kernel.at(self._kernel.now, self._end_turn)
                case Publish():
                    if self._network.is_heard:
                        self._network.publish(self._me, self._node.status(self._kernel.now))
                case ExportBlocks():
                    self._kernel.at(self._kernel.now, self._exported, effect)
                case ImportBlocks():
                    self._import(effect)
                case OffloadBlocks() | RestoreBlocks():
                    self._offload_or_restore(effect)
                case StoreBlocks() | LoadBlocks() | StopLoading():
                    self._use_tiers(effect)
                case _:
                    self._carry_out_rare(effect)
        self._arm(self._node.next_deadline())
        if coast is not None and coast is self._coast and coast.num_left:
            self._land_if_unsteady(coast)

    def _carry_out_rare(self, effect: NodeEffect) -> None:
        match effect:
            case LoadModel() | StageModel() | LoadAdapter():
                self._load(effect)
            case DropWeights(service):
                self._models.drop_weights(service)
            case DropModel(service):
                self._models.drop(service)
            case UnstageModel(service):
                self._models.unstage(service)
            case DropAdapter():
                pass  # it has no weights
            case Follow(processes):
                self._followed |= processes
                self._network.follow(processes)
            case Forget(process):
                self._network.forget(self._me.process, process)
            case Recover():
                self._kernel.after(0.0, self._recovered)
            case Refuse(sender, message, reason):
                raise RuntimeError(f"{self!r} refuses {message} of {sender}: {reason}")
            case Rest():
                self.on_end()
            case Exit():
                self.on_crash()

    def _recovered(self) -> None:
        self._carry_out(self._node.recovered(self._kernel.now))

    def _import(self, job: ImportBlocks) -> None:
        self._copier.copy(self._copy_s(job), self._imported, job)

    def _copy_s(self, job: ImportBlocks) -> float:
        return self._models.copies[job.service].elapsed_s(len(job.destinations))

    def _offload_or_restore(self, job: OffloadBlocks | RestoreBlocks) -> None:
        elapsed_s = self._models.offloading[job.service].elapsed_s(len(job.blocks))
        match job:
            case OffloadBlocks():
                self._copier.copy(elapsed_s, self._offloaded, job, self._kernel.now)
            case RestoreBlocks():
                self._copier.copy(elapsed_s, self._restored, job, self._kernel.now)

    def _use_tiers(self, job: StoreBlocks | LoadBlocks | StopLoading) -> None:
        """One store after the other, and one load; a load that is stopped ends, and nobody minds."""
        if isinstance(job, StopLoading):
            return
        tiers = self._models.tiers[job.service]
        match job:
            case StoreBlocks():
                self._storer.copy(tiers.store_s(len(job.blocks)), self._stored, job)
            case LoadBlocks():
                self._tier_loader.copy(tiers.load_s(job.digests), self._loaded_blocks, job, tiers)

    def _stored(self, job: StoreBlocks) -> None:
        """What is still in its block is stored."""
        self._catch_up()
        stored, service = BlocksStored({}), self._models.services.get(job.service)
        if service is not None:
            pairs = zip(job.digests, job.blocks, strict=True)
            kept = [digest for digest, block in pairs if service.pool.find(digest) == block]
            stored = self._models.tiers[job.service].store(kept, job.used, self._kernel.now)
        self._carry_out(self._node.stored(stored, self._kernel.now))

    def _loaded_blocks(self, job: LoadBlocks, tiers: SimulatedTiers) -> None:
        """Its service may have been unloaded meanwhile, as when another engine asked for the blocks."""
        self._catch_up()
        loaded = tiers.load(job.digests, self._kernel.now)
        self._carry_out(self._node.blocks_loaded(job.ticket, loaded, self._kernel.now))

    def _load(self, job: Loading) -> None:
        """Beside what is computed; one after the other, as there is one thread for it."""
        self._loads_until = max(self._loads_until, self._kernel.now) + self._models.load_s(job)
        self._kernel.at(self._loads_until, self._end_load, job)

    def _end_load(self, job: Loading) -> None:
        self._catch_up()
        try:
            if self.failures.fails_load():
                raise UserError("its weights cannot be read")
            result = self._models.take(job)
        except UserError as error:
            self._carry_out(self._node.not_loaded(job, str(error), self._kernel.now))
        else:
            self._carry_out(self._node.loaded(job, result, self._kernel.now))

    def _arm(self, deadline: float | None) -> None:
        if deadline is not None and deadline < self._armed_at:
            self._armed_at = deadline
            self._kernel.at(deadline, self._expire, deadline)

    def _end_turn(self) -> None:
        """All that happens at this moment has happened."""
        self._carry_out(self._node.end_turn(self._kernel.now))

    # --- steps --------------------------------------------------------------------------------------------------------

    def _compute(self, step: Step) -> None:
        model, now = self._models.steps[step.service.name], self._kernel.now
        self._drafting_s = self._models.drafting_s(step)
        coast = self._make_coast(step, model) if self._coasts and not self._sampler.may_miss(step) else None
        if coast is not None:
            self._coast = coast
            self._end_coast(coast)
            self._deliver_in_time(coast)
        elif self._host is not None:
            self._num_started += 1
            load = step.load()
            alone_s = model.between_s + model.elapsed_s(load) + sum(self._drafting_s)
            finish = partial(self._finish_shared_step, self._num_started, step, now + model.between_s)
            self._host.compute(self._me.process, StepWork(alone_s, model.slowdown(load), bool(load.chunks)), finish)
        else:
            elapsed_s = model.elapsed_s(step.load()) + sum(self._drafting_s) + self.failures.take_stall_s()
            self._end_step_at(now + model.between_s + elapsed_s, step, elapsed_s)

    def _make_coast(self, step: Step, model: StepModel) -> Coast | None:
        num_steps = self.core.num_steady_steps()
        coast = Coast(step, self.core.load(step), model, self._kernel.now, num_steps) if num_steps else None
        if coast is None or not coast.end_before(self.core.steady_until()):
            return None
        return coast

    def _end_coast(self, coast: Coast) -> None:
        self._end_step_at(coast.last_end, coast.step, coast.last_step_s)

    def _end_step_at(self, when: float, step: Step, elapsed_s: float) -> None:
        self._num_started += 1
        self._kernel.at(when, self._finish_step, self._num_started, step, elapsed_s)

    def _finish_step(self, number: int, step: Step, elapsed_s: float, had_extra_threads: bool = False) -> None:
        if number != self._num_started:
            return  # it was to be the end of a coast that was cut short
        self._catch_up()
        self._coast = None
        if self.failures.fails_step():
            self._carry_out(self._node.fail_step(StepError.ORDINARY, FAULT, FAULT))
        else:
            result = StepResult(self._sampler.results(step), elapsed_s, had_extra_threads, self._drafting_s)
            self._carry_out(self._node.finish_step(result, self._kernel.now))
        self._take_kept()

    def _finish_shared_step(self, number: int, step: Step, started_at: float, had_extra_threads: bool) -> None:
        self._finish_step(number, step, self._kernel.now - started_at, had_extra_threads)

    def _deliver_in_time(self, coast: Coast) -> None:
        """See to it that the step is noticed whose tokens are to be delivered, if it is one to be passed by."""
        num_steps = self.core.num_steps_to_delivery()
        if num_steps <= coast.num_left:
            self._kernel.at(coast.end_of_next(num_steps), self._deliver, coast)

    def _deliver(self, coast: Coast) -> None:
        if self._coast is coast:
            self._catch_up()
            self._deliver_in_time(coast)

    def _catch_up(self) -> None:
        """Let the steps have ended that have by now."""
        if self._coast is not None:
            num_steps, ended_at = self._coast.pass_until(self._kernel.now)
            if num_steps:
                for effect in self._node.pass_steps(num_steps, TOKEN_ID, ended_at):
                    self._network.send(self._me.process, effect.to, effect.message)

    def _land_if_unsteady(self, coast: Coast) -> None:
        if self.core.num_steady_steps() < coast.num_left or not coast.ends_before(self.core.steady_until()):
            coast.land()
            self._end_coast(coast)


def _stay() -> None:
    """Where processes do not end."""
