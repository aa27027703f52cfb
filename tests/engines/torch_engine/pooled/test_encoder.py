"""Encoders against transformers, on tiny random weights in float32."""

from pathlib import Path

import pytest
import torch

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.pooled.encoder import Encoder, Text
from tests.engines.torch_engine.pooled.conftest import VARIANTS, write_encoder


def encoder_of(folder: Path, dtype: str = "float32") -> Encoder:
    return Encoder(folder, ModelConfig.load(folder), dtype, torch.device("cpu"))


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_hidden_states_are_those_of_transformers(tmp_path: Path, variant: str, texts: list[list[int]]):
    theirs = write_encoder(tmp_path, variant)
    hidden = encoder_of(tmp_path).forward([Text(text) for text in texts])
    wanted = torch.cat([theirs(torch.tensor([text])).last_hidden_state[0] for text in texts])
    torch.testing.assert_close(hidden, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["bert", "roberta"])
@torch.inference_mode()
def test_scores_of_pairs_are_those_of_transformers(tmp_path: Path, variant: str, texts: list[list[int]]):
    theirs = write_encoder(tmp_path, variant, scores=True)
    encoder, firsts = encoder_of(tmp_path), [len(text) // 2 for text in texts]
    pairs = [Text(text, first) for text, first in zip(texts, firsts, strict=True)]
    scores = encoder.scores(encoder.forward(pairs), [len(text) for text in texts])
    has_segments = theirs.config.type_vocab_size > 1
    for score, text, first in zip(scores, texts, firsts, strict=True):
        kinds = [int(has_segments and 0 < first <= place) for place in range(len(text))]
        logits = theirs(torch.tensor([text]), token_type_ids=torch.tensor([kinds])).logits
        torch.testing.assert_close(score, torch.sigmoid(logits)[0], atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_text_is_the_same_beside_others_and_alone(tmp_path: Path, texts: list[list[int]]):
    write_encoder(tmp_path, "bert")
    encoder = encoder_of(tmp_path)
    together = encoder.forward([Text(text) for text in texts]).split([len(text) for text in texts])
    for text, hidden in zip(texts, together, strict=True):
        torch.testing.assert_close(encoder.forward([Text(text)]), hidden, atol=1e-5, rtol=1e-5)


def test_int8_is_refused_by_name(tmp_path: Path):
    write_encoder(tmp_path, "bert")
    with pytest.raises(ModelError, match="encoders have no int8; float32, bfloat16 or float16 would be right"):
        encoder_of(tmp_path, "int8")


def test_a_missing_tensor_is_named(tmp_path: Path):
    write_encoder(tmp_path, "bert")
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(ModelError, match=r"the model has no tensor encoder\.layer\.2\.attention\.self\.query\.weight"):
        encoder_of(tmp_path)
