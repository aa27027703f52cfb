"""Weights that do not fit their configuration are named when they are loaded."""

import json
import re

import pytest
from safetensors import safe_open

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.layers.cpu_kernels import keeps_codes
from engines.torch_engine.parts import weight_bytes
from engines.torch_engine.weights import loaded_bytes
from tests.models.tiny_llama import write_tiny_model


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


def test_the_size_of_weights_is_that_of_the_matrices_in_the_file(tmp_path):
    """On CPU, embeddings stay in the file; a tied head is a matrix of its own."""
    write_tiny_model(tmp_path)
    config = ModelConfig.load(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - it is no mapping
    in_layers = sum(shape[0] * shape[1] for name, shape in shapes.items() if ".layers." in name and len(shape) == 2)
    rows = config.vocab_size * config.hidden_size
    assert weight_bytes(config, "float32", "cpu") == 4 * (in_layers + rows)
    assert weight_bytes(config, "bfloat16", "cuda:0") == 2 * (in_layers + 2 * rows)
    assert weight_bytes(config, "int8", "cpu") == weight_bytes(config, "float32", "cpu")  # before it is in codes
    if keeps_codes("bfloat16", "cpu"):
        head = 4 * rows  # 64 do not divide its outputs
        assert loaded_bytes(tmp_path, config, "bfloat16", "cpu") == 2 * in_layers + head
