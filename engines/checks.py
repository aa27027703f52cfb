"""Checks a topology before anything starts: which profiles there are, and which promises they rule out."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engines.adapters.folder import AdapterFolder, fault_of
from engines.adapters.places import why_no_place
from engines.admission.promises import never_kept
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import EngineProfile, ProfileError
from engines.costs.serving_systems import imitating
from engines.memory.quotas import too_small
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import check_place, prepared_dir
from engines.tiers.opening import missing_encryption, shared_folder, too_small_tier
from kvtransfer.layout import DTYPE_BYTES
from mesh.errors import UserError
from mesh.sizes import in_words
from mesh.topology.checks.access import is_on_this_machine
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology
from mesh.transports import missing_transport

NEEDS_PROFILE = 'backend = "simulated" needs a profile, such as profile = "h100-llama2-70b-tp4"'


def check(topology: Topology) -> list[str]:
    """Remarks of one line each. Raise `UserError` where an engine could not start."""
    elsewhere = [remark for service in topology.services for remark in _missing_models(topology, service)]
    for adapter in topology.adapters:
        _check_adapter(topology, adapter)
    tiers = topology.kv_tiers
    if tiers is not None:
        problems = [missing_encryption(tiers), shared_folder(tiers)]
        problems += [too_small_tier(topology, engine) for engine in topology.own_engines]
        if problem := next(filter(None, problems), ""):
            raise UserError(f"{topology.path}: kv_tiers: {problem}")
    profiles = {engine.id: profile_of(topology, engine) for engine in topology.engines}
    remarks = elsewhere + ([problem] if (problem := missing_transport(topology.transfer.transport)) else [])
    for engine in topology.own_engines:
        remarks += too_small(topology, engine, profiles[engine.id])
    for service in topology.services:
        check_draft(topology, service)
        costs = [profiles[engine.id] for engine in topology.engines if service.name in engine.services]
        known = [cost for cost in costs if cost is not None]
        if known and len(known) == len(costs):
            remarks += [f"services.{service.name}.{broken}" for broken in never_kept(service.slo, known)]
    return remarks


def _missing_models(topology: Topology, spec: ServiceSpec) -> Iterator[str]:
    """What is wrong with a model that is named by its path: other hosts may have it. Raise `UserError` if there are
    none.
    """
    if not spec.model:
        return  # servers have theirs
    try:
        check_place(spec.model)
    except ModelError as error:
        problem = f"services.{spec.name}.model: {error}"
        if is_on_this_machine(topology):
            raise UserError(problem if spec.is_added else f"{topology.path}: {problem}") from None
        yield f"{problem} (this is of the machine that checks; hosts that serve it must have it)"


def _check_adapter(topology: Topology, spec: ServiceSpec) -> None:
    """Raise `UserError` if its files cannot be served, do not fit the base, if that is here, or any engine of it."""
    place = f"{topology.path}: services.{spec.name}.adapter"
    if spec.adapter is None or spec.base is None:
        return
    try:
        folder = AdapterFolder.read(spec.adapter)
    except ModelError as error:
        raise UserError(f"{place}: {error}") from None
    model: ModelConfig | None = None
    with suppress(ModelError):  # it may not be prepared yet: then those that load it will say so
        model = ModelConfig.load(prepared_dir(spec.model))
    if model is not None and (fault := fault_of(folder, model, spec.base)) is not None:
        raise UserError(f"{place}: {fault}")
    if (lack := why_no_place(topology, spec.base, folder, model)) is not None:
        raise UserError(f"{place}: {lack}")
    num_bytes = folder.num_weights * DTYPE_BYTES.get(spec.dtype, DTYPE_BYTES["float32"])
    for engine in topology.own_engines:
        if spec.base in engine.services and num_bytes > engine.adapter_memory_bytes:
            room = f"adapter_memory of engines.{engine.id} is {in_words(engine.adapter_memory_bytes)}"
            raise UserError(f"{place}: takes {in_words(num_bytes)}, and {room}; give it more")


def check_draft(topology: Topology, spec: ServiceSpec) -> None:
    """Raise `UserError` if the model that writes a service's drafts has other tokens, as far as both are here."""
    if spec.draft is None:
        return
    folders: list[Path] = []
    with suppress(ModelError):  # it may not be prepared yet: then the engines will say so
        folders = [prepared_dir(topology.service(name).model) for name in (spec.name, spec.draft)]
    if not folders:
        return
    from engines.models.text.vocabularies import why_not_alike

    try:
        fault = why_not_alike(*folders)
    except ModelError as error:
        fault = str(error)
    if fault is not None:
        advice = f"{spec.draft} cannot write drafts for {spec.name}; take a model of the same family"
        raise UserError(f"{topology.path}: services.{spec.name}.draft: {fault}: {advice}")


def profile_of(topology: Topology, engine: EngineSpec) -> EngineProfile | None:
    """Return the profile that an engine's table names. None: it is measured when the engine starts. Raise `UserError`
    if there is none of that name.
    """
    if engine.profile is None:
        if engine.backend == "simulated":
            raise UserError(f"{topology.path}: engines.{engine.id}: {NEEDS_PROFILE}")
        return None
    try:
        return imitating(engine, load_profile(engine.profile))
    except ProfileError as error:
        raise UserError(f"{topology.path}: engines.{engine.id}: {error}") from None
