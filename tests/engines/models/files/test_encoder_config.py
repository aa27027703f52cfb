import json
from pathlib import Path

import pytest

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig

BERT = {
    "model_type": "bert", "vocab_size": 100, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip


def load(folder: Path, **changes: object) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(BERT | changes))
    return ModelConfig.load(folder)


def test_positions_of_roberta_begin_after_that_of_padding(tmp_path: Path):
    assert load(tmp_path).max_context == 64
    roberta = load(tmp_path, model_type="roberta", max_position_embeddings=66, pad_token_id=1)
    assert roberta.max_context == 64
    assert roberta.encoder is not None
    assert roberta.encoder.first_position == 2


def test_a_head_that_scores_pairs_is_known_by_the_architecture(tmp_path: Path):
    encoder = load(tmp_path).encoder
    assert encoder is not None
    assert encoder.num_classes == 0
    scores = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    encoder = load(tmp_path, **scores).encoder
    assert encoder is not None
    assert (encoder.num_classes, encoder.squashes) == (1, True)
    plain = scores | {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    encoder = load(tmp_path, **plain).encoder
    assert encoder is not None
    assert not encoder.squashes


def test_dimensions_that_vectors_may_be_cut_to_are_read(tmp_path: Path):
    assert load(tmp_path, matryoshka_dimensions=[32, 16]).matryoshka == (16, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "silu"}, "hidden_act 'silu' is not supported; supported of encoders are gelu, gelu_new, relu"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key' is not supported"),
        ({"is_decoder": True}, "is_decoder is not supported of an encoder"),
        ({"quantization_config": {}}, "quantised weights of encoders are not supported"),
        ({"num_attention_heads": 5}, "hidden_size must be a multiple of num_attention_heads"),
        ({"sbert_ce_default_activation_function": "torch.nn.Tanh"}, "scores by Tanh are not supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changes: dict[str, object], message: str):
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path, **changes)
    assert str(caught.value).startswith(f"{tmp_path}/config.json: ")
