"""The forward pass of encoders: BERT, RoBERTa, XLM-RoBERTa. Each token of a text attends to all of its tokens.

A step computes whole texts, flattened to rows: matrix products know no padding. Only attention pads, and only among
texts of like lengths.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from engines.models.errors import ModelError
from engines.models.files.encoder_config import EncoderShape
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.layers.linear import Linear, pack
from engines.torch_engine.layers.norm import LayerNorm
from engines.torch_engine.tensors import ReadTensor, Tensors, read_tensor

PADDED_TOKENS: Final = 4  # of the shortest text of a group, and as many more as an eighth of it
ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(frozen=True, slots=True)
class Text:
    """A text to encode. ``first_tokens``: of them, that belong to the first of a pair; 0: it is no pair."""

    tokens: Sequence[int]
    first_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """One transformer block's packed weights. Norms come after what they normalise (Vaswani and others, 2017)."""

    qkv: Linear
    out: Linear
    attention_norm: LayerNorm
    up: Linear
    down: Linear
    mlp_norm: LayerNorm


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Texts that attend together. ``rows`` [texts, longest]: of the step, of each of their tokens; ``mask`` [texts, 1,
    1, longest]: which of them are tokens; None: all.
    """

    rows: Tensor
    mask: Tensor | None


class Encoder:
    """One model. ``dtype``: of its weights and of what it computes, one of torch's."""

    def __init__(
        self, folder: Path, config: ModelConfig, dtype: str, device: torch.device, read: ReadTensor = read_tensor
    ) -> None:
        if config.encoder is None:
            raise ModelError(f"{folder}: model_type {config.model_type!r} is no encoder")
        if dtype == "int8":
            raise ModelError("encoders have no int8; float32, bfloat16 or float16 would be right")
        self._config = config
        self._shape: EncoderShape = config.encoder
        self._device = device
        weights = Weights(Tensors(folder, getattr(torch, dtype), device, read), config)
        self._tokens = weights.table("word_embeddings", config.vocab_size)
        self._positions = weights.table("position_embeddings", config.max_position_embeddings)
        self._segments = weights.table("token_type_embeddings", config.encoder.num_segments)
        self._norm = weights.norm("embeddings.LayerNorm")
        self._layers = [weights.layer(number) for number in range(config.num_layers)]
        self._activation = ACTIVATIONS[config.activation]
        self._head = weights.score_head() if config.encoder.num_classes else None

    def forward(self, texts: Sequence[Text]) -> Tensor:
        """Compute the hidden states of all tokens. [tokens, hidden], text by text."""
        hidden = self._norm(self._embed(texts))
        groups = list(_groups([len(text.tokens) for text in texts], self._device))
        for layer in self._layers:
            hidden = layer.attention_norm(hidden + layer.out(self._attend(layer.qkv(hidden), groups)))
            hidden = layer.mlp_norm(hidden + layer.down(self._activation(layer.up(hidden))))
        return hidden

    def scores(self, hidden: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute what the classification head makes of each text's first token: [texts, 1]."""
        if self._head is None:
            raise ModelError("this model has no classification head, and scores nothing")
        ends = torch.tensor(lengths, device=hidden.device).cumsum(0)
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        dense, out = self._head
        logits = out(torch.tanh(dense(hidden[starts]))).float()
        return torch.sigmoid(logits) if self._shape.squashes else logits

    def _embed(self, texts: Sequence[Text]) -> Tensor:
        """The sum of what a token is, where it is, and which text of a pair it belongs to."""
        tokens = [token for text in texts for token in text.tokens]
        first = self._shape.first_position
        positions = [position for text in texts for position in range(first, first + len(text.tokens))]
        segments = [segment for text in texts for segment in self._segments_of(text)]
        rows = torch.tensor([tokens, positions, segments], device=self._device)
        return self._tokens[rows[0]] + self._positions[rows[1]] + self._segments[rows[2]]

    def _segments_of(self, text: Text) -> list[int]:
        first, num_tokens = text.first_tokens, len(text.tokens)
        if not first or self._shape.num_segments < 2:
            return [0] * num_tokens
        return [0] * first + [1] * (num_tokens - first)

    def _attend(self, qkv: Tensor, groups: Sequence[TextGroup]) -> Tensor:
        """Attend within each text. [tokens, 3 * hidden] to [tokens, hidden]."""
        config = self._config
        out = torch.empty(len(qkv), config.hidden_size, dtype=qkv.dtype, device=qkv.device)
        for group in groups:
            num_texts, longest = group.rows.shape
            heads = qkv[group.rows.view(-1)].view(num_texts, longest, 3, config.num_heads, config.head_dim)
            query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
            attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=group.mask)
            attended = attended.transpose(1, 2).reshape(-1, config.hidden_size)
            if group.mask is None:
                out[group.rows.view(-1)] = attended
            else:
                is_token = group.mask.view(-1)
                out[group.rows.view(-1)[is_token]] = attended[is_token]
        return out


def _groups(lengths: Sequence[int], device: torch.device) -> Iterator[TextGroup]:
    """Texts of like lengths: little of what a group computes is padding."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    while order:
        shortest = lengths[order[0]]
        longest = shortest + max(PADDED_TOKENS, shortest // 8)
        members = [i for i in order if lengths[i] <= longest]
        order = order[len(members) :]
        yield _group([starts[i] for i in members], [lengths[i] for i in members], device)


def _group(starts: Sequence[int], lengths: Sequence[int], device: torch.device) -> TextGroup:
    longest = lengths[-1]
    first, sizes = torch.tensor(starts)[:, None], torch.tensor(lengths)[:, None]
    places = torch.arange(longest)[None]
    rows = first + torch.minimum(places, sizes - 1)  # what is padded repeats the last token, which the mask hides
    mask = None if lengths[0] == longest else (places < sizes)[:, None, None, :].to(device)
    return TextGroup(rows.to(device), mask)


class Weights:
    """The tensors of an encoder's checkpoint, by what they are. Names may begin with the model's, such as ``bert.``."""

    def __init__(self, tensors: Tensors, config: ModelConfig) -> None:
        self._tensors = tensors
        self._config = config
        self._prefix = next((name for name in ("bert.", "roberta.") if tensors.has(f"{name}{EMBEDDED}")), "")

    def table(self, name: str, num_rows: int) -> Tensor:
        return self._get(f"embeddings.{name}.weight", num_rows, self._config.hidden_size)

    def norm(self, name: str) -> LayerNorm:
        size = self._config.hidden_size
        return LayerNorm(self._get(f"{name}.weight", size), self._get(f"{name}.bias", size), self._config.norm_eps)

    def layer(self, number: int) -> EncoderLayer:
        prefix, hidden, inner = (
            f"encoder.layer.{number}",
            self._config.hidden_size,
            self._config.intermediate_size,
        )
        attention = f"{prefix}.attention"
        return EncoderLayer(
            qkv=self._linear([f"{attention}.self.{name}" for name in ("query", "key", "value")], hidden, hidden),
            out=self._linear([f"{attention}.output.dense"], hidden, hidden),
            attention_norm=self.norm(f"{attention}.output.LayerNorm"),
            up=self._linear([f"{prefix}.intermediate.dense"], inner, hidden),
            down=self._linear([f"{prefix}.output.dense"], hidden, inner),
            mlp_norm=self.norm(f"{prefix}.output.LayerNorm"),
        )

    def score_head(self) -> tuple[Linear, Linear]:
        """Return both products of the classification head, with a tanh between them."""
        hidden = self._config.hidden_size
        if self._tensors.has("classifier.out_proj.weight"):
            return self._bare("classifier.dense", hidden), self._bare("classifier.out_proj", 1)
        return self._linear(["pooler.dense"], hidden, hidden), self._bare("classifier", 1)

    def _bare(self, name: str, num_out: int) -> Linear:
        hidden = self._config.hidden_size
        weight = self._tensors.get(f"{name}.weight", (num_out, hidden))
        return pack(weight, self._tensors.get(f"{name}.bias", (num_out,)))

    def _linear(self, names: Sequence[str], num_out: int, num_in: int) -> Linear:
        """Projections that are computed as one."""
        weight = torch.cat([self._get(f"{name}.weight", num_out, num_in) for name in names])
        return pack(weight, torch.cat([self._get(f"{name}.bias", num_out) for name in names]))

    def _get(self, name: str, *shape: int) -> Tensor:
        return self._tensors.get(f"{self._prefix}{name}", shape)


EMBEDDED: Final = "embeddings.word_embeddings.weight"
