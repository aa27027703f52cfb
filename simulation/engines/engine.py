"""The shell around one engine core in virtual time: what `engines.process` does with sockets, threads and a clock."""

from collections.abc import Iterable
from math import inf

from engines.core import EngineCore
from engines.effects import Copied, DropModel, Effect, LoadModel, OffloadBlocks, RestoreBlocks
from engines.scheduling.backlog import Step
from engines.scheduling.batch import ChunkResult, StepResult
from kvtransfer.protocol import ExportBlocks, Exported, ImportBlocks, Imported, Send
from mesh.errors import UserError
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import Probe
from mesh.wire.status import EngineStatus
from mesh.wire.transfers import Blocks, Taken
from simulation.engines.coasting import Coast
from simulation.engines.copying import Copier
from simulation.engines.host import Host
from simulation.engines.models import Models
from simulation.engines.steps import StepModel
from simulation.kernel import Kernel
from simulation.network import Network

TOKEN_ID = 0
TOKEN = ChunkResult(TOKEN_ID)
NO_TOKEN = ChunkResult()
UNTOUCHING = Blocks, Probe, Taken  # messages that neither change what runs nor ask how far it is


class SimulatedEngine:
    """One life of an engine. Engines of one ``host`` slow each other.

    With ``coasts``, decode steps that change nothing but the number of tokens are passed by in one event, and most of
    their tokens are delivered later. Times, statuses and decisions stay the same.
    """

    def __init__(
        self,
        me: Sender,
        core: EngineCore,
        models: Models,
        kernel: Kernel,
        network: Network,
        heartbeat_s: float,
        host: Host | None = None,
        *,
        coasts: bool,
    ) -> None:
        self.core = core
        self._sender = me
        self._models = models
        self._kernel = kernel
        self._network = network
        self._heartbeat_s = heartbeat_s
        self._host = host
        self._coasts = coasts
        self._coast: Coast | None = None
        self._is_computing = False
        self._num_started = 0  # steps, and coasts that were cut short
        self._has_changed = False  # and will say so at the end of this moment
        self._beats_at = inf
        self._armed_at = inf
        self._copier = Copier(kernel)
        self._loads_until = -inf  # when the loader is done with all that it was told
        self._loader = kernel.random(f"loads of {me.process}@{me.incarnation}")
        self._load_failures = 0.0
        network.connect(me.process, self.receive)

    def __repr__(self) -> str:
        return f"<SimulatedEngine {self.core!r}{' computing' * self._is_computing}>"

    def start(self, at: float) -> None:
        """Publish the first status at that time."""
        self._beats_at = at
        self._kernel.at(at, self._beat)

    def set_pace(self, pace: float) -> None:
        """Its steps take so many times as long as modelled, from the next one (or the next coast) on."""
        self._models.set_pace(pace)

    def set_load_failures(self, probability: float) -> None:
        """That the weights of a service cannot be read, found out when they should be here."""
        self._load_failures = probability

    # --- what happens -------------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: EngineMessage) -> None:
        if not isinstance(message, UNTOUCHING):
            self._catch_up()
        effects = self.core.receive(sender, message, (), self._kernel.now)
        if effects or not isinstance(message, Probe):  # as in engines.process
            self._perform(effects)

    def drain(self) -> None:
        """It was asked to end."""
        self._catch_up()
        self._perform(self.core.drain(self._kernel.now))

    def observe(self, sender: Sender, status: EngineStatus) -> None:
        """Another engine's status."""
        if sender.process != self._sender.process and self.core.observe(sender.process, status, self._kernel.now):
            self._catch_up()
            effects = self.core.look(self._kernel.now)
            if effects:
                self._perform(effects)

    def lose_peer(self, process: str) -> None:
        """A gateway or another engine died."""
        self._catch_up()
        self._perform(self.core.lose_peer(process, self._kernel.now))

    def _exported(self, job: ExportBlocks) -> None:
        self._catch_up()
        event = Exported(job.seq, [0] * len(job.blocks), [], ())
        self._perform(self.core.exported(job.transfer, event, self._kernel.now))

    def _imported(self, job: ImportBlocks) -> None:
        self._catch_up()
        event = Imported(job.message.seq, ok=True, elapsed_s=self._copy_s(job))
        self._perform(self.core.imported(job.transfer, event, self._kernel.now))

    def _offloaded(self, job: OffloadBlocks, since: float) -> None:
        self._catch_up()
        copied = Copied(job.ticket, ok=True, elapsed_s=self._kernel.now - since)
        self._perform(self.core.offloaded(copied, self._kernel.now))

    def _restored(self, job: RestoreBlocks, since: float) -> None:
        self._catch_up()
        copied = Copied(job.ticket, ok=True, elapsed_s=self._kernel.now - since)
        self._perform(self.core.restored(copied, self._kernel.now))

    def _expire(self, when: float) -> None:
        if when != self._armed_at:
            return
        self._armed_at = inf
        deadline = self.core.next_deadline()
        if deadline is None or deadline > self._kernel.now:
            self._rearm()  # what was to be answered was
        else:
            self._catch_up()
            self._perform(self.core.expire(self._kernel.now))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._network.send(self._sender.process, effect.to, effect.message)
                case ExportBlocks():
                    self._kernel.after(0.0, self._exported, effect)
                case ImportBlocks():
                    self._import(effect)
                case OffloadBlocks():
                    self._copier.copy(self._offloading_s(effect), self._offloaded, effect, self._kernel.now)
                case RestoreBlocks():
                    self._copier.copy(self._offloading_s(effect), self._restored, effect, self._kernel.now)
                case LoadModel():
                    self._load(effect.service)
                case DropModel():
                    self._models.drop(effect.service)
        self._rearm()
        if self._coast is not None:
            self._land_if_unsteady(self._coast)
        if not self._has_changed and (self.core.has_news or not self._is_computing):
            self._has_changed = True
            self._kernel.after(0.0, self._end_moment)

    def _import(self, job: ImportBlocks) -> None:
        self._copier.copy(self._copy_s(job), self._imported, job)

    def _copy_s(self, job: ImportBlocks) -> float:
        return self._models.copies[job.service].elapsed_s(len(job.destinations))

    def _offloading_s(self, job: OffloadBlocks | RestoreBlocks) -> float:
        return self._models.offloading[job.service].elapsed_s(len(job.blocks))

    def _load(self, service: str) -> None:
        """Beside what is computed; one after the other, as there is one thread for it."""
        self._loads_until = max(self._loads_until, self._kernel.now) + self._models.load_s(service)
        self._kernel.at(self._loads_until, self._end_load, service)

    def _end_load(self, service: str) -> None:
        self._catch_up()
        if self._loader.random() < self._load_failures:
            self._perform(self.core.not_loaded(service, "its weights cannot be read", self._kernel.now))
            return
        try:
            opened = self._models.open(service)
        except UserError as error:
            self._perform(self.core.not_loaded(service, str(error), self._kernel.now))
        else:
            self._perform(self.core.loaded(opened, self._kernel.now))

    def _rearm(self) -> None:
        deadline = self.core.next_deadline()
        if deadline is not None and deadline < self._armed_at:
            self._armed_at = deadline
            self._kernel.at(deadline, self._expire, deadline)

    def _end_moment(self) -> None:
        """Say what has changed, once for all that happened at this time, and compute if there is something to."""
        self._has_changed = False
        if not self._is_computing:
            self._compute()
        if self.core.has_news and self._network.is_heard:
            self._publish()

    # --- steps --------------------------------------------------------------------------------------------------------

    def _compute(self) -> None:
        step, effects = self.core.next_step(self._kernel.now)
        if effects:
            self._perform(effects)
        if step is None:
            return
        self._is_computing = True
        model, now = self._models.steps[step.service.name], self._kernel.now
        coast = self._make_coast(step, model) if self._coasts else None
        if coast is not None:
            self._coast = coast
            self._end_coast(coast)
            self._deliver_in_time(coast)
        elif self._host is not None:
            self._num_started += 1
            load = step.load()
            alone_s, finish = model.between_s + model.elapsed_s(load), self._finish_shared_step
            arguments = (self._num_started, step, now + model.between_s)
            self._host.compute(alone_s, model.slowdown(load), self._kernel.after, 0.0, finish, *arguments)
        else:
            elapsed_s = model.elapsed_s(step.load())
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

    def _finish_step(self, number: int, step: Step, elapsed_s: float) -> None:
        if number != self._num_started:
            return  # it was to be the end of a coast that was cut short
        self._catch_up()
        self._coast = None
        self._is_computing = False
        self._perform(self.core.finish_step(StepResult(_results(step), elapsed_s), self._kernel.now))
        self._compute()

    def _finish_shared_step(self, number: int, step: Step, started_at: float) -> None:
        self._finish_step(number, step, self._kernel.now - started_at)

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
                for effect in self.core.pass_steps(num_steps, TOKEN_ID, ended_at):
                    self._network.send(self._sender.process, effect.to, effect.message)

    def _land_if_unsteady(self, coast: Coast) -> None:
        if not coast.num_left:
            return
        if self.core.num_steady_steps() < coast.num_left or not coast.ends_before(self.core.steady_until()):
            coast.land()
            self._end_coast(coast)

    # --- statuses -----------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        self._network.publish(self._sender, self.core.status(self._kernel.now))
        self._beats_at = self._kernel.now + self._heartbeat_s

    def _beat(self) -> None:
        if self._kernel.now >= self._beats_at:
            self._catch_up()
            self._publish()
        self._kernel.at(self._beats_at, self._beat)


def _results(step: Step) -> list[ChunkResult]:
    """Tokens are sampled where nothing is left to compute."""
    if not step.prompts:
        return [TOKEN] * len(step.shares)
    shares = step.shares
    return [TOKEN if share.num_tokens == share.request.num_uncomputed else NO_TOKEN for share in shares]
