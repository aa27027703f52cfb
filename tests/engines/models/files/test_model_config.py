import json
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
    assert (config.head_dim, config.num_kv_heads, config.rope_theta, config.rope_scaling) == (16, 2, 10000.0, None)
    assert (config.attention_bias, config.qk_norm, config.tie_word_embeddings) == (False, False, False)
    assert (config.dtype, config.max_context, config.eos_token_ids) == ("float32", 256, ())


def test_families_differ_in_bias_and_norms(tmp_path: Path):
    assert load(tmp_path, model_type="qwen2").attention_bias
    assert load(tmp_path, model_type="qwen3", head_dim=128).qk_norm
    assert load(tmp_path, model_type="llama", attention_bias=True).attention_bias


def test_end_of_sequence_ids_of_both_files_are_joined(tmp_path: Path):
    assert load(tmp_path, eos_token_id=2).eos_token_ids == (2,)
    assert load(tmp_path, {"eos_token_id": [7, 2, 9]}, eos_token_id=2).eos_token_ids == (2, 7, 9)


def test_rope_is_read_from_the_old_and_the_new_keys(tmp_path: Path):
    old = load(tmp_path, rope_theta=5e5, rope_scaling={"type": "linear", "factor": 4.0})
    new = load(tmp_path, rope_parameters={"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0})
    for config in (old, new):
        assert config.rope_theta == 5e5
        assert config.rope_scaling is not None
        assert (config.rope_scaling["rope_type"], config.rope_scaling["factor"]) == ("linear", 4.0)
        assert config.max_context == 1024
    assert load(tmp_path, rope_parameters={"rope_theta": 5e5, "rope_type": "default"}).rope_scaling is None


def test_context_is_what_the_stretched_rope_reaches(tmp_path: Path):
    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
    assert load(tmp_path, rope_scaling=llama3).max_context == 256
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert load(tmp_path, rope_scaling=yarn).max_context == 512


def test_context_ends_at_the_sliding_window(tmp_path: Path):
    assert load(tmp_path, model_type="mistral", sliding_window=64).max_context == 64
    assert load(tmp_path, model_type="qwen2", sliding_window=64, use_sliding_window=False).max_context == 256
    full = ["full_attention", "full_attention"]
    assert (
        load(tmp_path, model_type="qwen3", sliding_window=64, use_sliding_window=True, layer_types=full).max_context
        == 256
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported; supported are llama, mistral, qwen2, qwen3"),
        ({"hidden_size": "64"}, r"Expected `int`, got `str` - at `\$\.hidden_size`"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic' is not supported; supported are"),
        ({"rope_scaling": {"type": "linear"}}, "rope type 'linear' needs a factor"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; it must be 'silu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq weights are not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"num_key_value_heads": 3}, "num_attention_heads must be a multiple of num_key_value_heads"),
    ],
)
def test_faults_name_the_file_and_what_would_be_right(tmp_path: Path, changes: dict[str, object], message: str):
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path, **changes)
    assert str(caught.value).startswith(f"{tmp_path}/config.json: ")
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_readable_configuration_is_refused(tmp_path: Path):
    with pytest.raises(ModelError, match=r"config\.json: No such file"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json: no JSON, or cut short: Input data was truncated"):
        ModelConfig.load(tmp_path)
