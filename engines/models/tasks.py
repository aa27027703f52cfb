"""Says whether a model can do what its service is for, and how it makes vectors."""

from pathlib import Path

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.files.pooling_config import PoolingConfig
from mesh.topology.schema import ServiceSpec, Task


def check_task(folder: Path, config: ModelConfig, task: Task) -> None:
    """Raise `ModelError` unless the model in ``folder`` can do that."""
    encoder = config.encoder
    if task is Task.GENERATE and encoder is not None:
        raise ModelError(f'{folder}: {config.model_type!r} models make no tokens; set task = "embed" for its service')
    if task is Task.EMBED and encoder is not None and encoder.num_classes:
        raise ModelError(f'{folder}: it has a head that scores pairs; set task = "score" for its service')
    if task is Task.SCORE and (encoder is None or encoder.num_classes != 1):
        problem = "it has no head that makes one number of a pair"
        raise ModelError(f'{folder}: {problem}; set task = "embed", whose vectors are scored by their cosine')


def pooling_of(folder: Path, config: ModelConfig) -> PoolingConfig:
    """Return how the model makes vectors. Raise `ModelError` if its files say what is not supported."""
    return PoolingConfig.load(folder, is_encoder=config.encoder is not None)


def context_of(spec: ServiceSpec, folder: Path, config: ModelConfig) -> int:
    """Return the tokens that a request of a service may have, as far as the model has it: prompt and answer. Of
    vectors, as many as the model was trained to embed, unless the service says otherwise.
    """
    usual = config.max_context
    if spec.task is Task.EMBED:
        usual = min(usual, pooling_of(folder, config).max_tokens or usual)
    return min(spec.max_context or usual, config.max_context)
