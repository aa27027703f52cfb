"""Compares quotas of KV memory with the longest requests that services allow, before anything starts."""

from collections.abc import Iterator
from math import ceil

from engines.costs.profiles import EngineProfile
from engines.memory.known_shapes import known_config, shape_of
from engines.models.files.model_config import ModelConfig
from kvtransfer.layout import KVLayout, PageLayout
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology


def too_small(topology: Topology, engine: EngineSpec, profile: EngineProfile | None) -> Iterator[str]:
    """Remarks on quotas that hold less than the longest request, as far as the models are here. ``profile``: of an
    engine that models its steps, with its KV memory.
    """
    if not engine.kv_quotas:
        return
    services = [topology.service(name) for name in engine.services]
    configs = {spec.name: config for spec in services if (config := known_config(spec)) is not None}
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
    shapes = {spec.name: shape_of(configs[spec.name], spec, size) for spec in services}
    try:
        layout = PageLayout.fitting(shapes.values(), engine.kv_memory_bytes)
    except ValueError:
        return None  # the engine says so when it starts
    return layout.num_pages, KVLayout(shapes[name], layout).slots * size
