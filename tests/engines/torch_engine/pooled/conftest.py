"""Tiny random encoders, as transformers writes them."""

from pathlib import Path
from typing import Any

import pytest
import torch

COMMON: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 66, "pad_token_id": 1,
}  # fmt: skip
BERT = ("bert", COMMON)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": BERT,
    "bert-relu-one-segment": ("bert", COMMON | {"hidden_act": "relu", "type_vocab_size": 1}),
    "bert-for-vllm": ("bert", COMMON | {"hidden_size": 64, "num_attention_heads": 2}),  # its kernels want 32 a head
    "roberta": ("roberta", COMMON | {"type_vocab_size": 1}),
    "xlm-roberta-tanh": ("xlm-roberta", COMMON | {"hidden_act": "gelu_new", "type_vocab_size": 1}),
}


def write_encoder(folder: Path, variant: str, *, scores: bool = False) -> Any:
    """Write a model whose every part matters. Returns transformers' own."""
    import transformers

    model_type, values = VARIANTS[variant]
    config = transformers.AutoConfig.for_model(model_type, **values, **({"num_labels": 1} if scores else {}))
    kind = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModel
    torch.manual_seed(3)
    model = kind.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "LayerNorm.weight" in name else 0.0, 0.2)
    model.save_pretrained(folder)
    return model


@pytest.fixture
def texts() -> list[list[int]]:
    """Texts of many lengths, one token and the longest among them."""
    generator = torch.Generator().manual_seed(5)
    lengths = [7, 1, 64, 9, 30, 7, 8, 31, 12]
    return [torch.randint(2, 97, (length,), generator=generator).tolist() for length in lengths]
