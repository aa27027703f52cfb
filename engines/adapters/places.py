"""Says what adapters take of memory, and how many of which rank an engine holds whose places are of one size.

vLLM has such places: tensors that are made when it starts, in which any adapter takes the place of the largest one.
"""

from dataclasses import dataclass
from typing import Final

from engines.adapters.config import AdapterConfig
from engines.adapters.folder import AdapterFolder
from engines.adapters.ranks import RANK_OPTION, RANKS
from engines.adapters.sites import is_stacked
from engines.models.files.layer_shapes import has_projection, projection_shapes
from engines.models.files.model_config import ModelConfig
from kvtransfer.layout import DTYPE_BYTES
from mesh.sizes import in_words
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.adapters import LoraAdapter

PLACED: Final = ("vllm",)  # backends with places
USUAL_RANK: Final = 16  # where adapters may be added that nobody knows yet
MOST_PLACES: Final = 64  # more make steps slower, whoever is in them


@dataclass(frozen=True, slots=True)
class AdapterSizes:
    """What adapters take beside a model of ``dtype``. ``place_bytes``: each at least, where places are of one size."""

    dtype: str
    place_bytes: int = 0

    def of(self, adapter: LoraAdapter) -> int:
        """Return bytes."""
        return max(self.place_bytes, adapter.num_weights * DTYPE_BYTES[self.dtype])


@dataclass(frozen=True, slots=True)
class Places:
    """An engine's places for adapters up to ``rank``. ``place_bytes``: of the engine's memory for adapters, each."""

    rank: int
    count: int
    place_bytes: int

    @classmethod
    def fitting(cls, memory_bytes: int, model: ModelConfig, dtype: str, rank: int) -> "Places | None":
        """Return as many as are in ``memory_bytes``; None: not one is."""
        count = min(MOST_PLACES, memory_bytes // bytes_of_rank(model, dtype, rank))
        return cls(rank, count, memory_bytes // count) if count else None


def bytes_of_rank(model: ModelConfig, dtype: str, rank: int) -> int:
    """Return what a place takes: all projections of all layers, but for experts."""
    shapes = projection_shapes(model)
    own = [shapes[name] for layer in range(model.num_layers) for name in shapes if has_projection(model, layer, name)]
    return rank * sum([sum(shape) for shape in own]) * DTYPE_BYTES[dtype]


def projections_of(model: ModelConfig) -> list[str]:
    """Return how the modules are called that places are for, without what they are in."""
    names = [name for name in projection_shapes(model) if not is_of_experts(name)]
    return sorted({name.rpartition(".")[2] for name in names})


def is_of_experts(module: str) -> bool:
    """Return whether it is of one or all experts of a layer. Places are for the other modules."""
    return is_stacked(module) or ".experts." in f".{module}"


def largest_rank(config: AdapterConfig) -> int:
    """Return the rank of its largest module, at most."""
    return max([config.rank, *config.ranks.values()])


def rank_of(topology: Topology, engine: EngineSpec) -> int:
    """Return up to which rank an engine with places takes adapters; 0: none can come. Raise `ModelError` if one of the
    topology's cannot be read.
    """
    ranks = [
        largest_rank(AdapterConfig.load(spec.adapter))
        for spec in topology.adapters
        if spec.adapter is not None and spec.base in engine.services
    ]
    if topology.added is not None:
        ranks.append(USUAL_RANK)
    if not ranks or not engine.adapter_memory_bytes:
        return 0
    named = engine.options.get(RANK_OPTION)
    return named if isinstance(named, int) else next(rank for rank in RANKS if rank >= max(ranks))


def why_no_place(topology: Topology, base: str, folder: AdapterFolder, model: ModelConfig | None) -> str | None:
    """Return why an engine of ``base`` has no place for an adapter; None if all have. ``model``: None if not known."""
    for engine in topology.own_engines:
        if base not in engine.services or engine.backend not in PLACED:
            continue
        rank, own, place = rank_of(topology, engine), largest_rank(folder.config), f"engines.{engine.id}"
        if experts := [str(module) for module in folder.modules if is_of_experts(module.name)]:
            return (
                f"{folder.path}: {experts[0]} is of experts, which {place} computes without adapters; use torch engines"
            )
        if own > rank:
            larger = next(known for known in RANKS if known >= own)
            return (
                f"{folder.path}: has rank {own}, and {place} takes up to {rank}; "
                f"give it options = {{ {RANK_OPTION} = {larger} }}"
            )
        dtype = topology.service(base).dtype
        if model is not None and (size := bytes_of_rank(model, dtype, rank)) > engine.adapter_memory_bytes:
            return (
                f"{folder.path}: a place for rank {rank} takes {in_words(size)}, and adapter_memory of {place} is "
                f"{in_words(engine.adapter_memory_bytes)}; give it more"
            )
    return None
