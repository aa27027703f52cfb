"""Weights that do not fit their configuration are named when they are loaded."""

import json
import re

import pytest

from bench.tiny_model import write_tiny_model
from engines.models.errors import ModelError


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"intermediate_size": 100},
            "model.layers.0.mlp.gate_proj.weight is [96, 64], by config.json it should be [100, 64]",
        ),
        (
            {"num_key_value_heads": 4},
            "model.layers.0.self_attn.k_proj.weight is [32, 64], by config.json it should be [64, 64]",
        ),
        (
            {"hidden_size": 32},
            "model.layers.0.self_attn.q_proj.weight is [64, 64], by config.json it should be [64, 32]",
        ),
        ({"num_hidden_layers": 3}, "the model has no tensor model.layers.2.self_attn.q_proj.weight"),
        ({"tie_word_embeddings": False}, "the model has no tensor lm_head.weight"),
    ],
)
def test_weights_of_another_configuration(tmp_path, make_runner, changes, complaint):
    folder = write_tiny_model(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ModelError, match=re.escape(complaint)):
        make_runner(folder)


def test_a_tensor_that_is_not_where_the_index_says(tmp_path, make_runner):
    folder = write_tiny_model(tmp_path)
    index = {"weight_map": {"model.layers.0.self_attn.q_proj.weight": "other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "other.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(ModelError, match=r"other\.safetensors: model\.layers\.0\.self_attn\.q_proj\.weight cannot be"):
        make_runner(folder)
