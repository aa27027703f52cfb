"""Servers that are not ours, as simulations have them: engines that schedule as their profile says the server does."""

from collections.abc import Mapping
from dataclasses import replace

from engines.costs.profiles import EngineProfile, ServerTraits
from mesh.topology.schema import EngineSpec, Scheduling, ServiceSpec, Topology
from router.servers.backend_rules import OPENAI
from simulation.engines.shared_profiles import Profile, SharedProfile

MANY = 2**20  # requests that a server lets wait: it refuses nobody


def imitated(topology: Topology, profiles: Mapping[str, Profile]) -> Topology:
    """The same with the server's own scheduling, where an engine is a server. ``profiles`` by engine id."""
    engines = tuple([_imitated(engine, profiles[engine.id]) for engine in topology.engines])
    return replace(topology, engines=engines) if engines != topology.engines else topology


def _imitated(engine: EngineSpec, profile: Profile) -> EngineSpec:
    if engine.backend != OPENAI:
        return engine
    traits = traits_of(profile) or ServerTraits()
    return replace(
        engine,
        scheduling=Scheduling.CONTINUOUS,
        chunk_tokens=traits.chunk_tokens,
        max_running=min(engine.max_running, traits.max_running) if engine.server is not None else traits.max_running,
        max_waiting=MANY,
        block_size=traits.block_size,
        prefix_caching=traits.prefix_caching,
    )


def traits_of(profile: Profile) -> ServerTraits | None:
    """Return what is known of the server that a profile is of."""
    one: EngineProfile | None
    one = next(iter(profile.services.values()), None) if isinstance(profile, SharedProfile) else profile
    return None if one is None else one.server


def context_of(service: ServiceSpec, profile: Profile) -> int | None:
    """Return how many tokens a request and its answer may have there; None: nothing bounds them."""
    of_server = None if (traits := traits_of(profile)) is None else traits.max_context
    bounds = [bound for bound in (service.max_context, of_server) if bound is not None]
    return min(bounds, default=None)


def plans_ahead(engine: EngineSpec, profile: Profile) -> bool:
    """Return whether it plans an iteration while the one before it runs."""
    traits = _traits_shown(engine, profile)
    return traits is not None and traits.plans_ahead


def request_s(engine: EngineSpec, profile: Profile) -> float:
    """Return the seconds that a request takes there besides its iterations."""
    traits = _traits_shown(engine, profile)
    return 0.0 if traits is None else traits.request_s


def _traits_shown(engine: EngineSpec, profile: Profile) -> ServerTraits | None:
    """None: it schedules as ours do."""
    is_server = engine.imitates or engine.scheduling is Scheduling.CONTINUOUS
    return traits_of(profile) if is_server else None
