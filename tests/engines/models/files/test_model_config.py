import json
import re
from pathlib import Path

import pytest

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def load(folder: Path, generation: object = None, **changes: object) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(LLAMA | changes))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return ModelConfig.load(folder)


def test_absent_keys_take_the_defaults_of_the_family(tmp_path: Path):
    config = load(tmp_path)
    [rope] = config.ropes
    assert (config.head_dim, config.num_kv_heads, rope.theta, rope.scaling) == (16, 2, 10000.0, None)
    assert (config.activation, config.tie_word_embeddings, config.experts) == ("silu", False, None)
    assert (config.dtype, config.max_context, config.eos_token_ids) == ("float32", 256, ())
    gemma = load(tmp_path, model_type="gemma2")
    assert (gemma.activation, gemma.head_dim, gemma.tie_word_embeddings) == ("gelu_pytorch_tanh", 256, True)
    assert (gemma.attention_softcap, gemma.logit_softcap, gemma.attention_scale) == (50.0, 30.0, 1 / 16)
    assert load(tmp_path, model_type="gemma2", attn_logit_softcapping=None).attention_softcap is None


def test_keys_have_other_names_in_other_families(tmp_path: Path):
    neox = load(tmp_path, model_type="gpt_neox", num_key_value_heads=4, layer_norm_eps=1e-3, rotary_emb_base=5000)
    [rope] = neox.ropes
    assert (neox.norm_eps, neox.parallel_residual, rope.theta, rope.num_dims) == (1e-3, True, 5000.0, 4)


def test_text_models_that_read_images_are_read_as_what_they_are_of_text(tmp_path: Path):
    text = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "model_type": "gemma3_text"}
    config = load(tmp_path, model_type="gemma3", text_config=text, eos_token_id=[1, 106])
    assert (config.hidden_size, config.num_heads, config.vocab_size) == (32, 8, 262208)
    assert config.eos_token_ids == (1, 106)
    assert not config.fault


def test_end_of_sequence_ids_of_both_files_are_joined(tmp_path: Path):
    assert load(tmp_path, eos_token_id=2).eos_token_ids == (2,)
    assert load(tmp_path, {"eos_token_id": [7, 2, 9]}, eos_token_id=2).eos_token_ids == (2, 7, 9)


def test_rope_is_read_from_the_old_and_the_new_keys(tmp_path: Path):
    old = load(tmp_path, rope_theta=5e5, rope_scaling={"type": "linear", "factor": 4.0})
    new = load(tmp_path, rope_parameters={"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0})
    for config in (old, new):
        [rope] = config.ropes
        assert rope.theta == 5e5
        assert rope.scaling is not None
        assert (rope.scaling["rope_type"], rope.scaling["factor"]) == ("linear", 4.0)
        assert config.max_context == 1024
    [plain] = load(tmp_path, rope_parameters={"rope_theta": 5e5, "rope_type": "default"}).ropes
    assert plain.scaling is None


def test_context_is_what_the_stretched_rope_reaches(tmp_path: Path):
    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
    assert load(tmp_path, rope_scaling=llama3).max_context == 256
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert load(tmp_path, rope_scaling=yarn).max_context == 512


def test_context_of_long_and_short_factors_is_that_of_the_short_ones(tmp_path: Path):
    scaling = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = load(tmp_path, model_type="phi3", rope_scaling=scaling, original_max_position_embeddings=64)
    assert config.max_context == 64


def windows(config: ModelConfig) -> list[int | None]:
    assert config.max_context == 256
    return [layer.window for layer in config.layers]


def test_windows_are_those_of_the_layers(tmp_path: Path):
    assert windows(load(tmp_path, model_type="mistral", sliding_window=64)) == [64, 64]
    assert windows(load(tmp_path, model_type="mistral", sliding_window=None)) == [None, None]
    assert windows(load(tmp_path, model_type="qwen2", sliding_window=64, use_sliding_window=False)) == [None, None]
    later = {"model_type": "qwen3", "sliding_window": 64, "use_sliding_window": True}
    assert windows(load(tmp_path, **later, max_window_layers=1)) == [None, 64]
    assert windows(load(tmp_path, **later, layer_types=["sliding_attention", "full_attention"])) == [64, None]
    assert windows(load(tmp_path, model_type="gemma2", max_position_embeddings=256)) == [4096, None]


def test_layers_differ_in_rope_and_experts(tmp_path: Path):
    stretched = {"type": "linear", "factor": 8.0}
    gemma = load(tmp_path, model_type="gemma3_text", num_hidden_layers=6, rope_scaling=stretched)
    assert [gemma.ropes[layer.rope].theta for layer in gemma.layers if layer.rope is not None] == [1e4] * 5 + [1e6]
    assert [rope.scaling is None for rope in gemma.ropes] == [True, False]
    assert [layer.rope for layer in load(tmp_path, model_type="smollm3", num_hidden_layers=4).layers] == [0, 0, 0, None]
    moe = load(tmp_path, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, mlp_only_layers=[0])
    assert [layer.is_sparse for layer in moe.layers] == [False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "64"}, r"Expected `int`, got `str` - at `\$\.hidden_size`"),
        ({"num_key_value_heads": 3}, "num_attention_heads must be a multiple of num_key_value_heads"),
        ({"model_type": 7}, "model_type 7 should be a name, such as 'llama'"),
        ({"vocab_size": None}, "missing required field `vocab_size`"),
    ],
)
def test_faults_name_the_file_and_what_would_be_right(tmp_path: Path, changes: dict[str, object], message: str):
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path, **changes)
    assert str(caught.value).startswith(f"{tmp_path}/config.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model_type": "gpt2", "n_embd": 64}, "model_type 'gpt2' is not one of backend \"torch\": llama, mistral"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic' is not supported; supported are"),
        ({"rope_scaling": {"type": "linear"}}, "rope type 'linear' needs a factor"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is not supported; supported are silu, swish, gelu"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq weights are not supported"),
    ],
)
def test_what_other_backends_may_run_is_read_with_what_keeps_the_torch_engine_from_it(
    tmp_path: Path, changes: dict[str, object], fault: str
):
    config = load(tmp_path, **changes)
    assert fault in config.fault
    with pytest.raises(ModelError, match=re.escape(config.fault)):
        _ = config.architecture


def test_a_folder_without_a_readable_configuration_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match=r"config\.json: No such file"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json: no JSON, or cut short: Input data was truncated"):
        ModelConfig.load(tmp_path)
