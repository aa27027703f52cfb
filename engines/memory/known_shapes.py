"""Works out the shapes of services' KV blocks before anything starts, where their models are here."""

from contextlib import suppress

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from mesh.topology.schema import ServiceSpec
from mesh.wire.transfers import KVShape


def known_config(spec: ServiceSpec) -> ModelConfig | None:
    """Return None if the model is not prepared yet, a server's, or an encoder, which keeps no KV."""
    with suppress(ModelError):
        config = ModelConfig.load(prepared_dir(spec.model)) if spec.model else None
        return config if config is not None and config.encoder is None else None
    return None


def shape_of(config: ModelConfig, spec: ServiceSpec, block_size: int) -> KVShape:
    """Return the shape of a block, as engines will have it."""
    kept = spec.kv_dtype or ("float32" if spec.dtype == "int8" else spec.dtype)
    return KVShape(config.num_layers, config.num_kv_heads, config.head_dim, block_size, kept)
