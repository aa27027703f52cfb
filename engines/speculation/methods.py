"""Makes the speculation that a service's table asks for."""

from collections.abc import Callable, Mapping

from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from engines.speculation.drafter import Lookup
from engines.speculation.model_speculation import DraftModel, ModelSpeculation
from engines.speculation.speculates import Speculates
from engines.speculation.speculation import Speculation, lookup_in_prompt
from mesh.topology.schema import ServiceSpec


def speculation_of(
    spec: ServiceSpec,
    services: Mapping[str, Service],
    make_lookup: Callable[[EngineRequest], Lookup] = lookup_in_prompt,
) -> Speculates | None:
    """Return what a service's table asks for. ``services``: of the engine, as they come and go."""
    if spec.speculation is None:
        return None
    if spec.draft is None:
        return Speculation(spec.max_draft_tokens, make_lookup)
    name = spec.draft

    def find() -> DraftModel | None:
        service = services.get(name)
        return None if service is None else service.as_draft_model()

    return ModelSpeculation(spec.max_draft_tokens, find)
