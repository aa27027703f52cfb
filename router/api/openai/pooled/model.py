"""Services that make vectors or scores of texts, as the API sees them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engines.models.files.model_config import ModelConfig
from engines.models.tasks import check_task, context_of, pooling_of
from engines.models.text.text_encoder import TextEncoder
from mesh.topology.schema import ServiceSpec, Task
from router.api.access.terms import Offered, terms_of

PATHS: Final = {Task.EMBED: "/v1/embeddings, /v1/rerank or /v1/score", Task.SCORE: "/v1/rerank or /v1/score"}


@dataclass(frozen=True, slots=True)
class PooledModel(Offered):
    """A service that makes one vector, or one score, of each text. ``max_context``: tokens of a text or a pair.

    ``num_dimensions`` of a whole vector, and ``dimensions`` to which a client may have it cut.
    """

    max_context: int
    vocab_size: int
    task: Task
    num_dimensions: int
    dimensions: tuple[int, ...]
    encoder: TextEncoder

    @classmethod
    def load(cls, spec: ServiceSpec, folder: Path) -> "PooledModel":
        """Load the tokenizer of a model. ``folder`` holds the prepared model. Raise `ModelError` if it cannot be read,
        or does not do what the service is for.
        """
        config = ModelConfig.load(folder)
        check_task(folder, config, spec.task)
        embeds = spec.task is Task.EMBED
        return cls(
            **terms_of(spec),
            max_context=context_of(spec, folder, config),
            vocab_size=config.vocab_size,
            task=spec.task,
            num_dimensions=config.hidden_size if embeds else 1,
            dimensions=(spec.dimensions or config.matryoshka) if embeds else (),
            encoder=TextEncoder.load(folder, pooling_of(folder, config).prompt if embeds else ""),
        )

    @property
    def paths(self) -> str:
        """Where clients ask for it."""
        return PATHS[self.task]
