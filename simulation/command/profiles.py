"""Finds the profile of each engine of a simulation: what was named for it, or what was measured on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engines.checks import profile_of
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile, ProfileError
from engines.costs.serving_systems import imitating
from engines.models.cache import Cache
from engines.profiling.known import measured_here
from engines.profiling.store import ProfileStore
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import EngineSpec, Topology
from simulation.engines.shared_profiles import Profile, SharedProfile

Named = Mapping[str, str]  # profiles by pool, by engine, or for all others: ""


def parse_named(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``NAME`` and ``POOL=NAME``. Raise `ValueError`, saying what would be right."""
    named: dict[str, str] = {}
    for text in texts:
        pool, equals, name = text.partition("=")
        pool, name = (pool, name) if equals else ("", text)
        if not name or pool in named:
            raise ValueError(f"--profile: {text!r} does not fit; write it like server.toml, or decode=server.toml")
        named[pool] = name
    return named


def profiles_of(topology: Topology, named: Named) -> dict[str, Profile]:
    """Return the profiles by engine. Raise `UserError` with one question where nobody can know."""
    unknown = [pool for pool in named if pool and not any(_is_meant(engine, pool) for engine in topology.engines)]
    if unknown:
        pools = {engine.pool or engine.id for engine in topology.engines}
        raise UserError(f"--profile: {topology.path} has no engines {unknown[0]!r}; {suggestion(unknown[0], pools)}")
    store = ProfileStore.of(Cache.of_user())
    found = {engine.id: _profile_of(topology, engine, named, store) for engine in topology.engines}
    for engine in topology.engines:
        if engine.server is not None and found[engine.id] is None:  # servers of one table are alike
            found[engine.id] = next((found[one.id] for one in topology.engines if _is_like(one, engine, found)), None)
    missing = [engine for engine in topology.engines if found[engine.id] is None]
    if missing:
        raise UserError(_question(topology, missing))
    return {engine: profile for engine, profile in found.items() if profile is not None}


def _is_like(one: EngineSpec, engine: EngineSpec, found: Mapping[str, Profile | None]) -> bool:
    return one.pool == engine.pool != "" and found[one.id] is not None


def _is_meant(engine: EngineSpec, pool: str) -> bool:
    return pool in (engine.pool, engine.id)


def _profile_of(topology: Topology, engine: EngineSpec, named: Named, store: ProfileStore) -> Profile | None:
    name = next((name for pool, name in named.items() if pool and _is_meant(engine, pool)), named.get(""))
    if name is not None:
        try:
            return imitating(engine, load_profile(name))
        except ProfileError as error:
            raise UserError(f"--profile: {error}") from None
    if engine.backend == "simulated" or engine.profile is not None:
        return profile_of(topology, engine)
    return _measured(topology, engine, store)


def _measured(topology: Topology, engine: EngineSpec, store: ProfileStore) -> Profile | None:
    """Memory is the topology's, as engines like it are here."""
    services = {name: measured_here(engine, topology.service(name), store) for name in engine.services}
    known = {name: _with_memory(profile, engine) for name, profile in services.items() if profile is not None}
    if not known or len(known) < len(services):
        return None
    return next(iter(known.values())) if len(known) == 1 else SharedProfile.of(known)


def _with_memory(profile: EngineProfile, engine: EngineSpec) -> EngineProfile:
    return profile if profile.server is not None else replace(profile, kv_memory_bytes=engine.kv_memory_bytes)


def _question(topology: Topology, missing: Sequence[EngineSpec]) -> str:
    pools = list(dict.fromkeys(engine.pool or engine.id for engine in missing))
    which = f"engines.{pools[0]}" + (f" (and {len(pools) - 1} more)" if len(pools) > 1 else "")
    measure = f"mesh profile {topology.path}"
    if missing[0].backend == "openai":
        server = missing[0].server
        measure = f"mesh profile --url {server.url if server is not None else 'URL'}"
    return (
        f"{topology.path}: what does {which} cost? Nobody measured it on this machine: do so with `{measure}`, "
        f"or say it with --profile, a file or a preset such as h100-llama2-70b-tp4"
    )
