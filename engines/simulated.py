"""The backend ``simulated``: waits as long as the profile's hardware would compute, and makes tokens up.

KV is real memory with made-up content that blocks carry from engine to engine: a token's slot holds a hash of the
context up to it, made from the slot before. A sampled token is a hash of the last slot and the request's seed. So a
request gets the same tokens wherever it runs, and others if a transfer brings wrong bytes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from engines.adapters.folder import AdapterFolder
from engines.backend import Backend, LoadedModel
from engines.checks import NEEDS_PROFILE
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile
from engines.costs.serving_systems import imitating
from engines.costs.step_cost import StepCost
from engines.images.form import ImageForm
from engines.memory.staging_room import StagingRoom
from engines.memory.weight_room import WeightRoom
from engines.models.files.model_config import ModelConfig
from engines.models.identity import identity_of
from engines.models.store import prepared_dir
from engines.models.tasks import check_task, context_of
from engines.scheduling.batch import Batch, Chunk, ChunkResult, Draw, StepResult
from engines.speculation.drafting import loads_of, write_drafts
from engines.speculation.verification import Compute, compute_verified
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec, Task
from mesh.wire.requests import POOLED_TOKEN, TokenLogprobs
from mesh.wire.transfers import KVShape

SLOT_WORDS = 8  # of 8 bytes; a real token's KV takes thousands
HEAD_DIM = SLOT_WORDS * 8 // 4  # K and V, 2 bytes an element

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


Slots = NDArray[np.uint64]  # [num_blocks, block_size, SLOT_WORDS]


@dataclass(frozen=True, slots=True)
class SimulatedService:
    """A service without a model. ``vocabulary``: the token ids that may be sampled."""

    name: str
    cost: StepCost
    memory: KVMemory
    vocabulary: Sequence[int]
    num_dimensions: int = 1  # of vectors, where it makes them


class NoWeights:
    """The `AdapterLoader` of modelled engines: what a chunk's adapter changes is made up of its name."""

    def add(self, service: str, key: str, adapter: AdapterFolder) -> None:
        """It has been read by now."""

    def remove(self, service: str, key: str) -> None:
        """There is nothing to forget."""


class SimulatedExecutor:
    """A `StepExecutor` that takes modelled time. ``sleep`` waits that many seconds in the calling thread."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._services: dict[str, SimulatedService] = {}
        self._slots: dict[str, Slots] = {}
        self._sleep = sleep

    def add(self, service: SimulatedService) -> None:
        self._slots[service.name] = _slots(service.memory)
        self._services[service.name] = service

    def remove(self, service: str) -> None:
        del self._services[service], self._slots[service]

    def shape(self, service: str) -> KVShape:
        return self._services[service].memory.layout.shape

    def execute(self, batch: Batch) -> StepResult:
        """Compute a batch without a model. ``elapsed_s`` of the result is the modelled time."""
        started = time.perf_counter()
        orders = [chunk.drafting for chunk in batch.chunks if chunk.drafting is not None]
        costs = [self._services[order.service].cost for order in orders[:1]]
        drafting_s = [sum(cost.parts(load)) for cost in costs for load in loads_of(orders)]
        drafted = write_drafts(batch.chunks, self._computes, time.perf_counter)
        step_s = self._services[batch.service].cost.elapsed_s(replace(batch, chunks=drafted.chunks))
        results = compute_verified(drafted.chunks, self._computes(batch.service))
        elapsed_s = sum(drafting_s) + step_s
        self._sleep(max(0.0, started + elapsed_s - time.perf_counter()))
        return StepResult(results, elapsed_s, drafting_s=drafting_s)

    def _computes(self, name: str) -> Compute:
        service, slots = self._services[name], self._slots[name]
        return lambda rows: [_compute(row, slots, service.vocabulary, service.num_dimensions) for row in rows]

    def recover(self, *, frees_memory: bool) -> None:
        """There is no device that could be lost."""


def _slots(memory: KVMemory) -> Slots:
    """A block is a page here."""
    return memory.array.view(np.uint64).reshape(len(memory), memory.layout.shape.block_size, SLOT_WORDS)


def _compute(chunk: Chunk, slots: Slots, vocabulary: Sequence[int], num_dimensions: int) -> ChunkResult:
    block_size = slots.shape[1]
    state = _state_before(chunk, slots)
    states = [state := _mix(state + (token + 1) * _GOLDEN) for token in chunk.tokens]
    positions = np.arange(chunk.start, chunk.start + len(chunk.tokens))
    blocks = np.asarray(chunk.blocks)[positions // block_size]
    slots[blocks, positions % block_size] = np.array(states, dtype=np.uint64)[:, None]
    prompt_logprobs = None if chunk.prompt_logprobs is None else _prompt_logprobs(chunk, chunk.prompt_logprobs)
    if chunk.draw is None:
        return ChunkResult(prompt_logprobs=prompt_logprobs)
    if chunk.draw.pooling is not None:
        return ChunkResult(POOLED_TOKEN, vector=_vector(state, num_dimensions))
    token = vocabulary[_mix(state ^ _mix(chunk.draw.sampling.seed & _MASK)) % len(vocabulary)]
    return ChunkResult(token, _drawn_logprobs(token, chunk.draw), prompt_logprobs)


def _vector(state: int, num_dimensions: int) -> bytes:
    """A vector of length 1 that is a hash of the prompt."""
    values = np.array([_mix(state + number * _GOLDEN) for number in range(1, num_dimensions + 1)], dtype=np.float64)
    values -= values.mean() if num_dimensions > 1 else 0.0
    return (values / np.linalg.norm(values)).astype("<f4").tobytes()


def _state_before(chunk: Chunk, slots: Slots) -> int:
    """The hash of everything before a chunk, from the KV of its predecessor."""
    if chunk.start == 0:
        return int.from_bytes(blake2b(chunk.adapter.encode(), digest_size=8).digest()) if chunk.adapter else 0
    index, offset = divmod(chunk.start - 1, slots.shape[1])
    words = slots[chunk.blocks[index], offset].tolist()
    # Bytes that are not a slot give other tokens instead of passing unseen.
    return words[0] if words == words[:1] * SLOT_WORDS else _mix(sum(words))


def _drawn_logprobs(token: int, draw: Draw) -> TokenLogprobs | None:
    return None if draw.sampling.logprobs is None else _certain(token, draw.sampling.logprobs)


def _prompt_logprobs(chunk: Chunk, num_top: int) -> list[TokenLogprobs | None]:
    return [
        _certain(token, num_top) if position else None for position, token in enumerate(chunk.tokens, start=chunk.start)
    ]


def _certain(token: int, num_top: int) -> TokenLogprobs:
    """A made-up model is sure of every token."""
    return TokenLogprobs(token, 0.0, [(token, 0.0)][:num_top])


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@dataclass(frozen=True, slots=True)
class CountedWeights:
    """Implements `Stager` for weights that are only counted."""

    room: StagingRoom
    profile: EngineProfile

    def stage(self, spec: ServiceSpec) -> int:
        """Return their bytes. Raise `UserError` if there is no room for them."""
        self.room.take(spec.name, self.profile.weight_bytes)
        return self.profile.weight_bytes

    def unstage(self, service: str) -> None:
        """They need no room any more."""
        self.room.give_back(service)


def simulated_backend(engine: EngineSpec, services: Sequence[ServiceSpec]) -> Backend:
    """Raise `UserError` if the engine names no profile, or one without room for a block."""
    if engine.profile is None:
        raise UserError(f"engines.{engine.id}: {NEEDS_PROFILE}")
    profile = imitating(engine, load_profile(engine.profile))
    memory = PagedMemory(PageLayout.of([_shape(engine)], _num_blocks(engine, profile)))
    executor, room = SimulatedExecutor(), WeightRoom(engine)

    staging_room = StagingRoom(engine)

    def add(spec: ServiceSpec) -> LoadedModel:
        config, blocks = ModelConfig.load(prepared_dir(spec.model)), KVMemory(memory, _shape(engine))
        room.take(spec.name, profile.weight_bytes)
        check_task(prepared_dir(spec.model), config, spec.task)
        num_dimensions = config.hidden_size if spec.task is Task.EMBED else 1
        executor.add(SimulatedService(spec.name, profile.cost, blocks, _vocabulary(config), num_dimensions))
        staging_room.give_back(spec.name)
        return LoadedModel(
            memory=blocks,
            eos_token_ids=frozenset(config.eos_token_ids),
            max_context=spec.max_context or context_of(spec, prepared_dir(spec.model), config),
            cost=profile.cost,
            weight_bytes=profile.weight_bytes,
            vocab_size=config.vocab_size,
            identity=identity_of(prepared_dir(spec.model)),
            pools=spec.pools,
            whole_prompts=config.encoder is not None,
            images=ImageForm.load(prepared_dir(spec.model)),
        )

    def remove(service: str) -> None:
        executor.remove(service)
        room.give_back(service)

    models, stager = {spec.name: add(spec) for spec in services}, CountedWeights(staging_room, profile)
    return Backend(executor, memory, models, add, remove, NoWeights(), stager=stager)


def _vocabulary(config: ModelConfig) -> list[int]:
    """Everything but ends: made-up answers are as long as their requests allow."""
    return [token for token in range(config.vocab_size) if token not in config.eos_token_ids]


def _shape(engine: EngineSpec) -> KVShape:
    """Few bytes a token, the same for all services."""
    return KVShape(1, 1, HEAD_DIM, engine.block_size, "float16")


def _num_blocks(engine: EngineSpec, profile: EngineProfile) -> int:
    """As many as the real hardware holds."""
    num_blocks = profile.kv_memory_bytes // (profile.kv_bytes_per_token * engine.block_size)
    if num_blocks < 1:
        raise UserError(
            f"engines.{engine.id}: {profile.kv_memory_bytes} bytes of KV in profile {profile.name} hold no block of "
            f"{engine.block_size} tokens; use a smaller block_size or another profile"
        )
    return num_blocks
