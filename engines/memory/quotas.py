"""Compares quotas of KV memory with the longest requests that services allow, before anything starts."""

from collections.abc import Iterator
from contextlib import suppress
from math import ceil

from engines.costs.profiles import EngineProfile
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from kvtransfer.layout import KVLayout, PageLayout
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology
from mesh.wire.transfers import KVShape


def too_small(topology: Topology, engine: EngineSpec, profile: EngineProfile | None) -> Iterator[str]:
    """Remarks on quotas that hold less than the longest request, as far as the models are here. ``profile``: of an
    engine that models its steps, with its KV memory.
    """
    if not engine.kv_quotas:
        return
    services = [topology.service(name) for name in engine.services]
    configs = {spec.name: config for spec in services if (config := _config(spec)) is not None}
    for name, part in engine.kv_quotas.items():
        spec = topology.service(name)
        longest = spec.max_context or (configs[name].max_context if name in configs else None)
        pages = None if longest is None else _tokens_of_pages(engine, services, configs, name, profile)
        if longest is None or pages is None:
            continue
        num_pages, tokens_each = pages
        num_tokens = max(1, round(part * num_pages)) * tokens_each
        if num_tokens < longest:
            least = ceil(100 * longest / (num_pages * tokens_each)) / 100
            wanted = f"{least:g} at least, or " if least <= 1 else ""
            yield (
                f"engines.{engine.id}.kv_quotas: {name} = {part:g} holds {num_tokens} tokens, and a request may have "
                f"{longest}: longer ones are refused; use {wanted}max_context = {num_tokens} in services.{name}"
            )


def _config(spec: ServiceSpec) -> ModelConfig | None:
    """None if the model is not prepared yet, a server's, or an encoder, which keeps no KV."""
    with suppress(ModelError):
        config = ModelConfig.load(prepared_dir(spec.model)) if spec.model else None
        return config if config is not None and config.encoder is None else None
    return None


def _tokens_of_pages(
    engine: EngineSpec,
    services: list[ServiceSpec],
    configs: dict[str, ModelConfig],
    name: str,
    profile: EngineProfile | None,
) -> tuple[int, int] | None:
    """How many pages the engine's KV memory has, and how many tokens of a service each holds; None: not known."""
    size = engine.block_size
    if engine.backend == "simulated":
        return None if profile is None else (profile.kv_memory_bytes // (profile.kv_bytes_per_token * size), size)
    if len(configs) < len(services):
        return None
    shapes = {spec.name: _shape(configs[spec.name], spec, size) for spec in services}
    try:
        layout = PageLayout.fitting(shapes.values(), engine.kv_memory_bytes)
    except ValueError:
        return None  # the engine says so when it starts
    return layout.num_pages, KVLayout(shapes[name], layout).slots * size


def _shape(config: ModelConfig, spec: ServiceSpec, block_size: int) -> KVShape:
    kept = spec.kv_dtype or ("float32" if spec.dtype == "int8" else spec.dtype)
    return KVShape(config.num_layers, config.num_kv_heads, config.head_dim, block_size, kept)
