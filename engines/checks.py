"""Checks a topology before anything starts: which profiles there are, and which promises they rule out."""

from engines.admission.promises import never_kept
from engines.costs.profiles import EngineProfile, ProfileError, load_profile
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, Topology

NEEDS_PROFILE = 'backend = "simulated" needs a profile, such as profile = "h100-llama2-70b-tp4"'


def check(topology: Topology) -> list[str]:
    """Remarks of one line each. Raise `UserError` where an engine could not start."""
    profiles = {engine.id: profile_of(topology, engine) for engine in topology.engines}
    remarks = []
    for service in topology.services:
        costs = [profiles[engine.id] for engine in topology.engines if service.name in engine.services]
        known = [cost for cost in costs if cost is not None]
        if known and len(known) == len(costs):
            remarks += [f"services.{service.name}.{broken}" for broken in never_kept(service.slo, known)]
    return remarks


def profile_of(topology: Topology, engine: EngineSpec) -> EngineProfile | None:
    """Return the profile that an engine's table names. None: it is measured when the engine starts. Raise `UserError`
    if there is none of that name.
    """
    if engine.profile is None:
        if engine.backend == "simulated":
            raise UserError(f"{topology.path}: engines.{engine.id}: {NEEDS_PROFILE}")
        return None
    try:
        return load_profile(engine.profile)
    except ProfileError as error:
        raise UserError(f"{topology.path}: engines.{engine.id}: {error}") from None
