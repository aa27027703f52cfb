"""Defines what a backend makes of an engine's services: an executor, and what the engine must know of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engines.adapters.folder import AdapterFolder
from engines.costs.step_cost import StepCost
from engines.images.form import ImageForm
from engines.models.files.model_config import ModelConfig
from engines.models.identity import identity_of
from engines.models.store import prepared_dir
from engines.models.tasks import context_of
from engines.scheduling.batch import StepExecutor
from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A service that can be run. ``max_context`` counts prompt and answer, in tokens. ``weight_bytes`` 0: not known.
    ``vocab_size``: token ids are below it; None: not known. ``identity``: of `identity_of`. ``pools``: it makes vectors
    of prompts, and no tokens; ``whole_prompts``: each of them in one step. ``images``: how it sees them; None: it does
    not. ``place_bytes``: of memory for each of its LoRA adapters at least; ``factor_dtype``: of their weights, empty:
    that of KV.
    """

    memory: KVMemory | DeviceKVMemory
    eos_token_ids: frozenset[int]
    max_context: int
    cost: StepCost
    weight_bytes: int = 0
    vocab_size: int | None = None
    identity: str = ""
    pools: bool = False
    whole_prompts: bool = False
    images: ImageForm | None = None
    place_bytes: int = 0
    factor_dtype: str = ""

    @classmethod
    def of(
        cls,
        spec: ServiceSpec,
        config: ModelConfig,
        memory: KVMemory | DeviceKVMemory,
        cost: StepCost,
        weight_bytes: int,
        *,
        whole_prompts: bool = False,
        images: ImageForm | None = None,
        place_bytes: int = 0,
        factor_dtype: str = "",
    ) -> "LoadedModel":
        """Make the model with the context that its service allows, as far as the model has it."""
        folder = prepared_dir(spec.model)
        return cls(
            memory,
            frozenset(config.eos_token_ids),
            context_of(spec, folder, config),
            cost,
            weight_bytes,
            config.vocab_size,
            identity_of(folder),
            spec.pools,
            whole_prompts,
            images,
            place_bytes,
            factor_dtype,
        )


class AdapterLoader(Protocol):
    """Takes LoRA adapters for models that a backend has, while its executor computes."""

    def add(self, service: str, key: str, adapter: AdapterFolder) -> None:
        """Load one. Any thread may call it. Raise `UserError` if it cannot be had."""

    def remove(self, service: str, key: str) -> None:
        """Forget one that no chunk names any more."""


class Stager(Protocol):
    """Keeps weights ready in the host's memory until ``Backend.add`` takes them. Any thread may call it."""

    def stage(self, spec: ServiceSpec) -> int:
        """Read the weights of a service. Return the bytes that they will take once they are loaded. Raise `UserError`
        if they cannot be had, or there is no room for them.
        """

    def unstage(self, service: str) -> None:
        """Forget them, if they are there."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The executor and the models of an engine. ``models`` by the name of their service. Their blocks lie in
    ``memory``.

    ``add`` loads one more while the executor computes others; any thread may call it. Raise `UserError` if it cannot be
    had. ``remove`` forgets one that is not computed any more. ``adapters``: None if it computes none.
    ``follow_threads`` lets it compute with as many threads as a function says, from step to step; None: it cannot.
    ``stager``: None if it reads no weights ahead.
    """

    executor: StepExecutor
    memory: PagedMemory | DeviceMemory
    models: Mapping[str, LoadedModel]
    add: Callable[[ServiceSpec], LoadedModel]
    remove: Callable[[str], None]
    adapters: AdapterLoader | None = None
    follow_threads: Callable[[Callable[[], int]], None] | None = None
    stager: Stager | None = None

    @classmethod
    def of_fixed(
        cls,
        kind: str,
        engine: EngineSpec,
        executor: StepExecutor,
        memory: PagedMemory | DeviceMemory,
        models: Mapping[str, LoadedModel],
        adapters: AdapterLoader | None = None,
    ) -> "Backend":
        """Make a backend whose models are all that there will be, and stay while their services are unloaded. ``kind``:
        such as "vLLM".
        """

        def add(asked: ServiceSpec) -> LoadedModel:
            if asked.name not in models:
                ours = ", ".join(models)
                raise UserError(f"engines.{engine.id}: a {kind} engine loads models when it starts, and has {ours}")
            return models[asked.name]

        return cls(executor, memory, models, add, lambda _: None, adapters)
