"""Shapes of the projections of a model's layers, by the names of its checkpoint."""

import json
from pathlib import Path

from engines.models.files.layer_shapes import expert_modules, has_projection, projection_shapes, unnumbered
from engines.models.files.model_config import ModelConfig

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
MOE = {
    "model_type": "qwen2_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "mlp_only_layers": [0],
    "decoder_sparse_step": 1,
    "norm_topk_prob": False,
}


def load(folder: Path, **changes: object) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(LLAMA | changes))
    return ModelConfig.load(folder)


def test_keys_and_values_have_heads_of_their_own(tmp_path: Path):
    assert projection_shapes(load(tmp_path, head_dim=8)) == {
        "self_attn.q_proj": (32, 64),
        "self_attn.k_proj": (16, 64),
        "self_attn.v_proj": (16, 64),
        "self_attn.o_proj": (64, 32),
        "mlp.gate_proj": (96, 64),
        "mlp.up_proj": (96, 64),
        "mlp.down_proj": (64, 96),
    }


def test_what_is_computed_as_one_has_all_rows(tmp_path: Path):
    shapes = projection_shapes(load(tmp_path, model_type="phi3"))
    assert shapes["self_attn.qkv_proj"] == (64 + 2 * 32, 64)
    assert shapes["mlp.gate_up_proj"] == (2 * 96, 64)
    assert "mlp.gate_proj" not in shapes


def test_experts_are_as_wide_as_the_configuration_says(tmp_path: Path):
    config = load(tmp_path, **MOE)
    shapes = projection_shapes(config)
    (gate, up), (down,) = expert_modules(config, 3)
    assert (shapes[unnumbered(gate)], shapes[unnumbered(up)], shapes[unnumbered(down)]) == (
        (32, 64),
        (32, 64),
        (64, 32),
    )
    assert shapes["mlp.shared_expert.down_proj"] == (64, 48)
    assert ".3." in gate


def test_a_layer_has_experts_or_one_mlp(tmp_path: Path):
    config = load(tmp_path, **MOE)
    [(gate, _), _] = expert_modules(config, 3)
    assert [has_projection(config, layer, gate) for layer in (0, 1)] == [False, True]
    assert [has_projection(config, layer, "mlp.gate_proj") for layer in (0, 1)] == [True, False]
    assert [has_projection(config, layer, "mlp.shared_expert.up_proj") for layer in (0, 1)] == [False, True]
    assert has_projection(config, 1, "self_attn.q_proj")


def test_an_expert_that_there_is_not_has_no_projections(tmp_path: Path):
    config = load(tmp_path, **MOE)
    [(beyond, _), _] = expert_modules(config, 4)
    assert not has_projection(config, 1, beyond)
    assert not has_projection(config, 1, unnumbered(beyond)), "one of them has to be meant"
    assert not has_projection(config, 0, "mlp.another_proj")


def test_a_model_without_a_shared_expert_has_none(tmp_path: Path):
    config = load(tmp_path, **(MOE | {"shared_expert_intermediate_size": 0}))
    assert not has_projection(config, 1, "mlp.shared_expert.up_proj")
