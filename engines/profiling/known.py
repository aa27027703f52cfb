"""Finds profiles that were measured on this machine: by engines at their start, and by ``mesh profile``."""

import importlib.metadata
from collections.abc import Iterator

from engines.costs.profiles import EngineProfile
from engines.profiling.store import ProfileStore, server_key
from mesh.topology.schema import EngineSpec, ServiceSpec


def measured_here(engine: EngineSpec, spec: ServiceSpec, store: ProfileStore) -> EngineProfile | None:
    """Return what was measured of a service on such an engine. None: nothing was."""
    for key in _keys(engine, spec):
        found = store.load(key)
        if found is not None:
            return found.profile()
    return None


def _keys(engine: EngineSpec, spec: ServiceSpec) -> Iterator[str]:
    """Imported here: a backend's libraries take seconds to load, or are not installed."""
    try:
        match engine.backend:
            case "torch":
                from engines.torch_engine.backend import key_of

                yield key_of(engine, spec)
            case "transformers":
                from engines.transformers_engine.backend import key_of as transformers_key

                yield transformers_key(engine, spec, importlib.metadata.version("transformers"))
            case "vllm":
                from engines.vllm_engine.backend import key_of as vllm_key
                from engines.vllm_engine.versions import vllm_beside

                version = vllm_beside(engine.python)
                if version is not None:
                    yield vllm_key(engine, spec, version)
            case "openai":
                yield from _server_keys(engine, spec)
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return


def _server_keys(engine: EngineSpec, spec: ServiceSpec) -> Iterator[str]:
    server = engine.server
    if server is not None:
        yield server_key(server.url, server.name_of(spec.name))
