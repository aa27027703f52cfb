"""``config.json`` of encoders: BERT, RoBERTa and what has their shape. Their tokens attend to all others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

PADDED_POSITIONS: Final = ("roberta", "xlm-roberta", "camembert")  # positions count from after that of padding
ENCODER_TYPES: Final = ("bert", *PADDED_POSITIONS)
ACTIVATIONS: Final = ("gelu", "gelu_new", "relu")
CLASSIFIES: Final = "ForSequenceClassification"


class HfEncoder(msgspec.Struct, frozen=True):
    """Absent keys take the defaults of transformers."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    architectures: list[str] = []
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    type_vocab_size: int = 2
    pad_token_id: int | None = 0
    position_embedding_type: str = "absolute"
    id2label: dict[str, str] | None = None
    num_labels: int | None = None
    is_decoder: bool = False
    dtype: str | None = None
    torch_dtype: str | None = None  # the older name of dtype
    quantization_config: dict[str, Any] | None = None
    sbert_ce_default_activation_function: str | None = None
    sentence_transformers: Mapping[str, Any] | None = None
    matryoshka_dimensions: list[int] | None = None

    @property
    def first_position(self) -> int:
        """Return where a text begins in the table of positions."""
        return (self.pad_token_id or 0) + 1 if self.model_type in PADDED_POSITIONS else 0

    @property
    def num_classes(self) -> int:
        """Numbers that its classification head makes of a text; 0: it has no such head."""
        if not any(name.endswith(CLASSIFIES) for name in self.architectures):
            return 0
        return self.num_labels or len(self.id2label or {"0": "", "1": ""})

    @property
    def score_function(self) -> str:
        """What makes a score of the head's number, by the name of its class, as cross-encoders of sentence-transformers
        say it.
        """
        named = (self.sentence_transformers or {}).get("activation_fn") or self.sbert_ce_default_activation_function
        return str(named or "Sigmoid").rpartition(".")[2]

    def faults(self) -> list[str]:
        """What of it is not supported."""
        found = []
        if self.hidden_act not in ACTIVATIONS:
            found.append(
                f"hidden_act {self.hidden_act!r} is not supported; supported of encoders are {', '.join(ACTIVATIONS)}"
            )
        if self.position_embedding_type != "absolute":
            kind = self.position_embedding_type
            found.append(f"position_embedding_type {kind!r} is not supported; it must be 'absolute'")
        if self.is_decoder:
            found.append("is_decoder is not supported of an encoder; it must be false")
        if self.quantization_config is not None:
            found.append("quantised weights of encoders are not supported; take the float32 model")
        if self.hidden_size % self.num_attention_heads:
            found.append("hidden_size must be a multiple of num_attention_heads")
        if self.score_function not in ("Sigmoid", "Identity"):
            found.append(f"scores by {self.score_function} are not supported; supported are Sigmoid and Identity")
        return found


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """What an encoder has beside the shape of a model. ``first_position``: of a text, in the table of positions.

    ``num_classes``: numbers that a classification head makes of a text; 0: there is no such head. With ``squashes`` a
    score is their sigmoid.
    """

    num_segments: int
    first_position: int
    num_classes: int
    squashes: bool

    @classmethod
    def of(cls, raw: HfEncoder) -> "EncoderShape":
        return cls(
            raw.type_vocab_size,
            raw.first_position,
            raw.num_classes,
            raw.score_function == "Sigmoid",
        )
