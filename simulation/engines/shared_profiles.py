"""Engines that hold several models: each has costs and a KV shape of its own, and all share what memory is left."""

from collections.abc import Mapping
from dataclasses import dataclass

from engines.costs.profiles import EngineProfile


@dataclass(frozen=True, slots=True)
class SharedProfile:
    """The profile of an engine with several services. ``services`` on the engine's devices, each as if it were alone
    there; ``kv_memory_bytes`` is for all of them.
    """

    services: Mapping[str, EngineProfile]
    kv_memory_bytes: int
    num_devices: int

    @classmethod
    def of(cls, services: Mapping[str, EngineProfile]) -> "SharedProfile":
        """KV gets what the weights of all leave. The profiles are of the same devices."""
        first = next(iter(services.values()))
        memory_bytes = first.kv_memory_bytes + first.weight_bytes
        kv_memory_bytes = memory_bytes - sum(profile.weight_bytes for profile in services.values())
        return cls(services, kv_memory_bytes, first.num_devices)


Profile = EngineProfile | SharedProfile


def profile_of(profile: Profile, service: str) -> EngineProfile:
    """Return what one service costs there."""
    return profile.services[service] if isinstance(profile, SharedProfile) else profile
