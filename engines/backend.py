"""What a backend makes of an engine's services: an executor, and for each service what the engine must know of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from engines.batch import StepExecutor
from kvtransfer.memory import KVMemory
from mesh.messages import DecodeCost, PrefillCost


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A service that can be run. ``max_context`` counts prompt and answer, in tokens."""

    memory: KVMemory
    eos_token_ids: frozenset[int]
    max_context: int
    prefill_cost: PrefillCost
    decode_cost: DecodeCost


@dataclass(frozen=True, slots=True)
class Backend:
    """``models`` by the name of their service."""

    executor: StepExecutor
    models: Mapping[str, LoadedModel]
