"""What a backend makes of an engine's services: an executor, and for each service what the engine must know of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines.batch import StepExecutor
from engines.step_cost import StepCost
from kvtransfer.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.topology.schema import ServiceSpec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A service that can be run. ``max_context`` counts prompt and answer, in tokens. ``weight_bytes`` 0: not known."""

    memory: KVMemory | DeviceKVMemory
    eos_token_ids: frozenset[int]
    max_context: int
    cost: StepCost
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Backend:
    """``models`` by the name of their service. Their blocks lie in ``memory``.

    ``add`` loads one more while the executor computes others; any thread may call it. Raise `UserError` if it cannot be
    had. ``remove`` forgets one that is not computed any more.
    """

    executor: StepExecutor
    memory: PagedMemory | DeviceMemory
    models: Mapping[str, LoadedModel]
    add: Callable[[ServiceSpec], LoadedModel]
    remove: Callable[[str], None]
