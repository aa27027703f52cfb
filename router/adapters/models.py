"""Makes what the API serves of adapters: those of the topology, and those that are added while the mesh runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engines.adapters.access import named
from engines.adapters.folder import AdapterFolder
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from mesh.topology.schema import Topology
from mesh.wire.adapters import AddedAdapter
from router.api.openai.models import ServedModel
from router.api.openai.pooled.model import PooledModel

Bases = Mapping[str, ServedModel | PooledModel]


def models_of_adapters(topology: Topology, bases: Bases) -> Iterator[ServedModel]:
    """Adapters of the topology, by the models of their bases. Raise `ModelError` if one cannot be read or does not
    fit.
    """
    for spec in topology.adapters:
        assert spec.base is not None
        assert spec.adapter is not None
        folder = AdapterFolder.read(spec.adapter)
        try:
            folder.check_fits(ModelConfig.load(prepared_dir(spec.model)), spec.base)
        except ModelError as error:
            raise ModelError(f"services.{spec.name}: {error}") from None
        base = bases[spec.base]
        assert isinstance(base, ServedModel), "only what generates has adapters"
        yield base.with_adapter(spec, named(spec.name, folder))


def models_added(topology: Topology, bases: Bases, served: Mapping[str, AddedAdapter]) -> Sequence[ServedModel]:
    """Adapters that were added: they have the promises of their bases. Those of unknown bases are left out."""
    specs = {service.name: service for service in topology.services}
    return [
        base.with_adapter(replace(specs[one.base], name=name, aliases=(), base=one.base), one.adapter)
        for name, one in served.items()
        if isinstance(base := bases.get(one.base), ServedModel)
    ]
