"""Engine cores on a virtual network: seeded order of events, lost messages, KV whose content is followed."""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from engines.core import EngineCore
from engines.effects import (
    Copied,
    DropAdapter,
    DropModel,
    DropWeights,
    Effect,
    ForgetBlocks,
    LoadAdapter,
    LoadBlocks,
    LoadModel,
    OffloadBlocks,
    RestoreBlocks,
    StageModel,
    StopLoading,
    StoreBlocks,
)
from engines.scheduling.scheduler import Limits
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.speculation.model_speculation import DraftModel, ModelSpeculation
from engines.speculation.speculation import Speculation
from kvtransfer.layout import block_bytes
from kvtransfer.protocol import ExportBlocks, Exported, ImportBlocks, Imported, Send, TransferLimits
from kvtransfer.tiers.tier import BlocksLoaded, BlocksStored, Tier, TierUse
from mesh.topology.schema import Rescheduling, Scheduling
from mesh.wire.control import Role
from mesh.wire.messages import Message
from mesh.wire.requests import Accepted, Epoch, Failed, Refused, RequestSpec, StepTokens, Submit
from tests.engines.virtual_engine import VirtualEngine, VirtualTier, make_service
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE, SHAPE, STEP_S, HashingExecutor, VirtualMemory


@dataclass
class VirtualMesh:
    """``lose`` says of a message from one process to another whether it is lost, ``spoil`` of a copy of KV to host
    memory or back whether it fails.
    """

    seed: int = 0
    lose: Callable[[str, str, Message], bool] = lambda sender, to, message: False
    spoil: Callable[[], bool] = lambda: False
    vocabulary: int = 1000
    drafts: int = 0  # tokens that decodes may draft at a time
    draft_model: str | None = None  # the service that writes them; None: they are looked up
    now: float = 0.0
    engines: dict[str, VirtualEngine] = field(default_factory=dict)
    streams: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    finished: dict[str, str] = field(default_factory=dict)
    finished_under: dict[str, Epoch] = field(default_factory=dict)
    vectors: dict[str, bytes] = field(default_factory=dict)
    answers: list[Accepted | Refused | Failed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._copies: list[Callable[[], None]] = []
        self._links: dict[tuple[str, str], deque[Callable[[], None]]] = defaultdict(deque)  # in order, as sockets are

    def add(
        self,
        name: str,
        role: Role = Role.MULTIPLEX,
        num_blocks: int = 32,
        rescheduling: Rescheduling | None = None,
        services: tuple[str, ...] = (SERVICE,),
        scheduling: Scheduling = Scheduling.SLO,
        quotas: Mapping[str, float] | None = None,
        tier: VirtualTier | None = None,
        **limits: int,
    ) -> VirtualEngine:
        memory = VirtualMemory(num_blocks, quotas=quotas)
        settings = EngineSettings(
            name,
            "here",
            1,
            role,
            Limits(
                limits.get("max_running", 8), limits.get("chunk_tokens", 8), slice_tokens=limits.get("slice_tokens")
            ),
            limits.get("max_waiting", 16),
            "auto",
            5.0,
            TransferLimits(reply_s=0.5, grace_s=0.2, window=2, message_bytes=256),
            deliver_every=limits.get("deliver_every", 1),
            migrates_on_drain=bool(limits.get("migrates_on_drain", 1)),
            pulls=bool(limits.get("pulls", 0)),
            offload_bytes=limits.get("offload_bytes", 0),
            rescheduling=rescheduling,
            scheduling=scheduling,
            loadable=frozenset({SERVICE, OTHER}),
            adapter_memory_bytes=limits.get("adapter_memory", 0),
            weight_memory_bytes=limits.get("weight_memory"),
            staging_memory_bytes=limits.get("staging_memory", 0),
        )
        core = EngineCore(
            settings,
            {service: self.make_service(service, name, memory, tier) for service in services},
            lambda peer, ref: True,
        )
        executor, most = HashingExecutor(memory, self.vocabulary), limits.get("weight_memory", inf)
        self.engines[name] = VirtualEngine(core, executor, memory, tier=tier, weight_memory=most)
        return self.engines[name]

    def make_service(
        self, service: str, engine: str, memory: VirtualMemory, tier: VirtualTier | None = None
    ) -> Service:
        if self.draft_model is None:
            return make_service(service, engine, memory, tier, Speculation(self.drafts) if self.drafts else None)
        if service == self.draft_model:
            return make_service(service, engine, memory, tier, speed=20.0)

        def find() -> DraftModel | None:
            found = self.engines[engine].core._services.get(self.draft_model or "")
            return None if found is None else found.as_draft_model()

        return make_service(service, engine, memory, tier, ModelSpeculation(self.drafts, find))

    def submit(self, engine: str, spec: RequestSpec, decode: str | None = None, attempt: int = 1, **flags: Any) -> None:
        self.deliver(GATEWAY, engine, Submit(spec, Epoch(attempt), decode, **flags))

    def deliver(self, sender: str, to: str, message: Message) -> None:
        engine = self.engines[to]
        if not engine.dead:
            self.perform(to, engine.core.receive(sender, message, (), self.now))  # type: ignore[arg-type]

    def perform(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message) if not self.lose(name, to, message):
                    self._links[name, to].append(self._sending(name, to, message))
                case ExportBlocks():
                    self._copies.append(self._exporting(name, effect))
                case ImportBlocks():
                    self._copies.append(self._importing(name, effect))
                case OffloadBlocks():
                    self._copies.append(self._offloading(name, effect))
                case RestoreBlocks():
                    self._copies.append(self._restoring(name, effect))
                case ForgetBlocks(ticket):
                    self.engines[name].kept.pop(ticket, None)
                case StoreBlocks():
                    self._copies.append(self._storing(name, effect))
                case LoadBlocks():
                    self._copies.append(self._loading_blocks(name, effect))
                case StopLoading(ticket):
                    self.engines[name].stopped.add(ticket)
                case LoadModel(service):
                    self._copies.append(self._loading(name, service))
                case StageModel(service):
                    self._copies.append(self._staging(name, service))
                case DropWeights(service):
                    self.engines[name].weightless.add(service)
                case DropModel(service):
                    self.engines[name].weightless.discard(service)
                    self.engines[name].dropped.append(service)
                case LoadAdapter():
                    self._copies.append(self._loading_adapter(name, effect.adapter.key))
                case DropAdapter(_, key):
                    self.engines[name].executor.adapters.remove(key)
        self.engines[name].core.check_invariants()

    def _sending(self, name: str, to: str, message: Message) -> Callable[[], None]:
        return lambda: self._hear(message) if to == GATEWAY else self.deliver(name, to, message)

    def _exporting(self, name: str, job: ExportBlocks) -> Callable[[], None]:
        def run() -> None:
            engine = self.engines[name]
            generations = [engine.memory.generations[job.service, block] for block in job.blocks]
            event = Exported(job.seq, generations, [], ())
            self.perform(name, engine.core.exported(job.transfer, event, self.now))

        return run

    def _importing(self, name: str, job: ImportBlocks) -> Callable[[], None]:
        def run() -> None:
            engine, source = self.engines[name], self.engines[job.peer]
            pairs = list(zip(job.message.source_blocks, job.destinations, strict=True))
            fresh = [source.memory.generations[job.service, block] for block, _ in pairs] == job.message.generations
            for block, destination in pairs:
                for offset, state in source.memory.read(job.service, block).items():
                    engine.memory.write(job.service, destination, offset, state)
            self.perform(name, engine.core.imported(job.transfer, Imported(job.message.seq, fresh), self.now))

        return run

    def _offloading(self, name: str, job: OffloadBlocks) -> Callable[[], None]:
        engine = self.engines[name]

        def run() -> None:
            if engine.dead:
                return
            ok = not self.spoil()
            engine.kept[job.ticket] = [dict(engine.memory.read(job.service, block)) for block in job.blocks]
            self.perform(name, engine.core.offloaded(Copied(job.ticket, ok, 0.001), self.now))

        return run

    def _restoring(self, name: str, job: RestoreBlocks) -> Callable[[], None]:
        engine = self.engines[name]

        def run() -> None:
            if engine.dead:
                return
            ok = not self.spoil()
            kept = engine.kept[job.ticket][job.first :] if ok else []
            for block, content in zip(job.blocks, kept, strict=ok):
                for offset, state in content.items():
                    engine.memory.write(job.service, block, offset, state)
            self.perform(name, engine.core.restored(Copied(job.ticket, ok, 0.001), self.now))

        return run

    def _storing(self, name: str, job: StoreBlocks) -> Callable[[], None]:
        engine = self.engines[name]
        generations = [engine.memory.generations[job.service, block] for block in job.blocks]

        def run() -> None:
            tier, num_stored = engine.tier, 0
            assert tier is not None
            for digest, block, generation in zip(job.digests, job.blocks, generations, strict=True):
                if engine.memory.generations[job.service, block] == generation and not self.spoil():
                    tier.contents[digest] = dict(engine.memory.read(job.service, block))
                    tier.lacking.discard(digest)
                    num_stored += 1
            use = TierUse(num_stored, num_stored * block_bytes(SHAPE), 0.001)
            self.perform(name, engine.core.stored(BlocksStored({Tier.HOST: use}), self.now))

        return run

    def _loading_blocks(self, name: str, job: LoadBlocks) -> Callable[[], None]:
        engine = self.engines[name]

        def run() -> None:
            tier, num_loaded = engine.tier, 0
            assert tier is not None
            for digest, block in zip(job.digests, job.blocks, strict=True):
                content = tier.contents.get(digest)
                if content is None or job.ticket in engine.stopped or self.spoil():
                    break
                for offset, state in content.items():
                    engine.memory.write(job.service, block, offset, state)
                num_loaded += 1
            use = TierUse(num_loaded, num_loaded * block_bytes(SHAPE), 1e-6 * num_loaded)
            self.perform(
                name, engine.core.blocks_loaded(job.ticket, BlocksLoaded(num_loaded, {Tier.HOST: use}), self.now)
            )

        return run

    def _staging(self, name: str, service: str) -> Callable[[], None]:
        return lambda: self.perform(name, self.engines[name].core.staged(service, 1, self.now))

    def _loading(self, name: str, service: str) -> Callable[[], None]:
        engine = self.engines[name]

        def run() -> None:
            held = engine.core.residency.services.keys() - engine.weightless
            if len(held) >= engine.weight_memory:
                self.perform(name, engine.core.not_loaded(service, "no room for its weights", self.now))
                return
            if service in engine.weightless:
                engine.weightless.remove(service)
                loaded = engine.core.residency.services[service]
            else:
                loaded = self.make_service(service, name, engine.memory)
            self.perform(name, engine.core.loaded(loaded, self.now))

        return run

    def _loading_adapter(self, name: str, key: str) -> Callable[[], None]:
        engine = self.engines[name]

        def run() -> None:
            if self.spoil():
                self.perform(name, engine.core.adapter_not_loaded(key, "its file is damaged", self.now))
            else:
                engine.executor.adapters.add(key)
                self.perform(name, engine.core.adapter_loaded(key, self.now))

        return run

    def _hear(self, message: Message) -> None:
        if not isinstance(message, StepTokens):
            self.answers.append(message)  # type: ignore[arg-type]
            return
        for delta in message.deltas:
            stream = self.streams[delta.request]
            assert delta.offset <= len(stream), f"a gap before offset {delta.offset}: {stream}"
            known = stream[delta.offset :]
            assert all(new == old for new, old in zip(delta.tokens, known, strict=False)), "a repeated token differs"
            stream += delta.tokens[len(known) :]
            if delta.vector is not None:
                self.vectors[delta.request] = delta.vector
            if delta.finish is not None:
                assert delta.request not in self.finished, "a request finished twice"
                self.finished[delta.request] = delta.finish
                self.finished_under[delta.request] = delta.epoch

    def kill(self, name: str) -> None:
        self.engines[name].dead = True
        for other, engine in self.engines.items():
            if other != name and not engine.dead:
                self.perform(other, engine.core.lose_peer(name, self.now))

    def step(self) -> bool:
        """Do one pending thing, chosen at random; False if nothing is left but deadlines."""
        choices: list[Callable[[], bool]] = [self._next_on(link) for link in self._links.values() if link]
        choices += [self._copying(copy) for copy in self._copies]
        choices += [self._computing(name) for name, engine in self.engines.items() if not engine.dead]
        while choices:
            number = int(self._random.random() * len(choices))
            choices[number], choices[-1] = choices[-1], choices[number]
            if choices.pop()():
                return True
        return False

    @staticmethod
    def _next_on(link: deque[Callable[[], None]]) -> Callable[[], bool]:
        return lambda: link.popleft()() is None

    def _copying(self, copy: Callable[[], None]) -> Callable[[], bool]:
        def run() -> bool:
            self._copies.remove(copy)
            copy()
            return True

        return run

    def _computing(self, name: str) -> Callable[[], bool]:
        def run() -> bool:
            engine = self.engines[name]
            if engine.batch is None:
                engine.batch, effects = engine.core.next_batch(self.now)
                if engine.batch is None and not effects:
                    return False  # what does not hold now, the next event that comes to something finds
                self.perform(name, effects)
                return True
            batch, engine.batch = engine.batch, None
            assert batch.service not in engine.weightless, "a service is computed whose weights are gone"
            self.now += STEP_S
            self.perform(name, engine.core.finish_step(engine.executor.execute(batch), self.now))
            self._pass_deadlines()
            return True

        return run

    def _pass_deadlines(self) -> None:
        for name, engine in self.engines.items():
            deadline = None if engine.dead else engine.core.next_deadline()
            if deadline is not None and deadline <= self.now:
                self.perform(name, engine.core.expire(self.now))

    def settle(self, max_steps: int = 20_000) -> None:
        """Run until nothing is left to do, passing deadlines as they come; then check that nothing leaked."""
        for _ in range(max_steps):
            if self.step():
                continue
            alive = [engine for engine in self.engines.values() if not engine.dead]
            deadlines = [d for engine in alive if (d := engine.core.next_deadline()) is not None]
            if not deadlines:
                break
            self.now = max(self.now, min(deadlines))
            self._pass_deadlines()
        else:
            raise AssertionError(f"does not settle: {[engine.core for engine in self.engines.values()]}")
        for engine in self.engines.values():
            assert engine.dead or engine.core.is_idle, f"not idle at rest: {engine.core}"
