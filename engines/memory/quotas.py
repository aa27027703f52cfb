"""Compares KV memory and quotas of it with the longest requests that services allow, before anything starts."""

from collections.abc import Iterator
from math import ceil
from typing import Final

from engines.costs.profiles import EngineProfile
from engines.memory.known_shapes import known_config, shape_of
from engines.models.files.model_config import ModelConfig
from kvtransfer.layout import KVLayout, PageLayout
from mesh.sizes import MIB
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology

LARGE: Final = 8  # MiB: what is larger is told in those


def too_small(topology: Topology, engine: EngineSpec, profile: EngineProfile | None) -> Iterator[str]:
    """Remarks on KV memory, or quotas of it, that hold less than the longest request, as far as the models are here.
    ``profile``: of an engine that models its steps, with its KV memory.
    """
    services = [topology.service(name) for name in engine.services]
    configs = {spec.name: config for spec in services if (config := known_config(spec)) is not None}
    for spec in services:
        longest = spec.max_context or (configs[spec.name].max_context if spec.name in configs else None)
        pages = None if longest is None else _tokens_of_pages(engine, services, configs, spec.name, profile)
        if longest is None or pages is None:
            continue
        num_pages, tokens_each = pages
        part = engine.kv_quotas.get(spec.name)
        num_tokens = (num_pages if part is None else max(1, round(part * num_pages))) * tokens_each
        if num_tokens >= longest:
            continue
        share = longest / (num_pages * tokens_each)
        if part is not None:
            what, least = f"kv_quotas: {spec.name} = {part:g}", f"{ceil(100 * share) / 100:g}" if share <= 1 else ""
        elif engine.backend == "simulated":
            what, least = "profile: its KV memory", ""
        else:
            what, least = f"kv_memory: {_size(engine.kv_memory_bytes)}", _size(engine.kv_memory_bytes * share)
        yield (
            f"engines.{engine.id}.{what} holds {num_tokens} tokens of {spec.name}, and a request may have {longest}: "
            f"longer ones are refused or cut; use {f'{least} at least, or ' if least else ''}"
            f"max_context = {num_tokens} in services.{spec.name}"
        )


def _size(num_bytes: float) -> str:
    """Return a size as topologies have it, hardly larger."""
    is_large = num_bytes % MIB == 0 or num_bytes > LARGE * MIB
    return f"{ceil(num_bytes / MIB)}MiB" if is_large else f"{ceil(num_bytes * 1024 / MIB)}KiB"


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
