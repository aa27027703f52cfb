"""Serving systems that modelled engines imitate, from ``serving_systems.toml``: their scheduling and their host's time.

``imitates = "vllm-0.12"`` in the table of a simulated engine sets what that system sets where its users say nothing,
and adds its host's time to profiles that were composed of kernels.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from engines.costs.host import HostCost, with_host
from engines.costs.profiles import EngineProfile, ProfileError, ServerTraits, decode_toml
from mesh.suggestions import one_of, suggestion
from mesh.topology.schema import EngineSpec, Scheduling

MANY_WAITING = 2**20  # prefills: these systems refuse nobody


class ServingSystem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one version of a serving system does where its users say nothing.

    ``kv_part`` of the memory that weights leave holds KV; activations and captured graphs have the rest. ``request_ms``
    passes on top of a request's iterations until its first token is with its client.
    """

    kind: str
    version: str
    scheduling: Scheduling
    chunk_tokens: int
    max_running: int
    block_size: int
    kv_part: float
    per_step_ms: float
    per_request_ms: float
    request_ms: float
    source: str
    plans_ahead: bool = False
    prompt_layer_ms: float = 0.0

    @property
    def host(self) -> HostCost:
        return HostCost(self.per_step_ms / 1e3, self.per_request_ms / 1e3, self.prompt_layer_ms / 1e3)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the fields of `EngineSpec` that it sets."""
        return {
            "scheduling": self.scheduling,
            "chunk_tokens": self.chunk_tokens,
            "max_running": self.max_running,
            "max_waiting": MANY_WAITING,
            "block_size": self.block_size,
        }

    def on(self, profile: EngineProfile) -> EngineProfile:
        """Return what an engine with that profile costs under this system. One that was measured has its host in it."""
        traits = ServerTraits(
            kind=self.kind,
            version=self.version,
            chunk_tokens=self.chunk_tokens,
            max_running=self.max_running,
            block_size=self.block_size,
            request_s=self.request_ms / 1e3,
            plans_ahead=self.plans_ahead,
        )
        if not profile.kernels_only:
            return dataclasses.replace(profile, server=traits)
        kv_memory_bytes = int(self.kv_part * profile.kv_memory_bytes)
        return dataclasses.replace(with_host(profile, self.host), kv_memory_bytes=kv_memory_bytes, server=traits)


def serving_system(name: str) -> ServingSystem:
    """Raise `ProfileError` if there is none of that name."""
    systems = _systems()
    if name in systems:
        return systems[name]
    kind = name.partition("-")[0]
    measured = [one for one in systems if systems[one].kind == kind]
    if measured:
        raise ProfileError(f"{name!r} was not measured; of {kind}, use {one_of(measured)}")
    raise ProfileError(f"unknown serving system {name!r}; {suggestion(name, systems)}")


def serving_system_names() -> list[str]:
    return sorted(_systems())


def imitating(engine: EngineSpec, profile: EngineProfile) -> EngineProfile:
    """Return what the engine costs, if it has that profile. Raise `ProfileError` if what it imitates is not known."""
    return profile if engine.imitates is None else serving_system(engine.imitates).on(profile)


@cache
def _systems() -> dict[str, ServingSystem]:
    text = files("engines.costs").joinpath("serving_systems.toml").read_text(encoding="utf-8")
    return decode_toml(text, dict[str, ServingSystem])
