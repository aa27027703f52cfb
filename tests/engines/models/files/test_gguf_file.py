from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engines.models.errors import ModelError
from engines.models.files.gguf_file import GgufModel
from tests.engines.models.tiny import CONTEXT, FEED_FORWARD, HIDDEN, write_gguf


def test_tensors_get_hugging_face_names_and_row_order(tmp_path: Path):
    weights = write_gguf(tmp_path / "a.gguf", more=["blk.0.attn_q.bias"])
    tensors = dict(GgufModel(tmp_path / "a.gguf").tensors())
    assert len(tensors) == len(weights)
    for gguf_name, name in {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight",
        "blk.1.attn_q.weight": "model.layers.1.self_attn.q_proj.weight",
        "blk.1.attn_k.weight": "model.layers.1.self_attn.k_proj.weight",
        "blk.1.attn_v.weight": "model.layers.1.self_attn.v_proj.weight",
        "blk.1.attn_output.weight": "model.layers.1.self_attn.o_proj.weight",
        "blk.1.ffn_norm.weight": "model.layers.1.post_attention_layernorm.weight",
        "blk.1.ffn_gate.weight": "model.layers.1.mlp.gate_proj.weight",
        "blk.1.ffn_up.weight": "model.layers.1.mlp.up_proj.weight",
        "blk.1.ffn_down.weight": "model.layers.1.mlp.down_proj.weight",
    }.items():
        np.testing.assert_array_equal(tensors[name], weights[gguf_name])


def test_only_llama_files_have_their_rows_reordered(tmp_path: Path):
    norms = ["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"]
    weights = write_gguf(tmp_path / "a.gguf", "qwen3", more=norms, tied=False)
    tensors = dict(GgufModel(tmp_path / "a.gguf").tensors())
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.q_proj.weight"], weights["blk.0.attn_q.weight"])
    np.testing.assert_array_equal(
        tensors["model.layers.0.self_attn.k_norm.weight"], weights["blk.0.attn_k_norm.weight"]
    )
    np.testing.assert_array_equal(tensors["lm_head.weight"], weights["output.weight"])


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0, GGMLQuantizationType.F16])
def test_quantised_tensors_become_float32(tmp_path: Path, kind: GGMLQuantizationType):
    weights = write_gguf(tmp_path / "a.gguf", quantization=kind)
    tensors = dict(GgufModel(tmp_path / "a.gguf").tensors())
    expected = dequantize(quantize(weights["blk.0.ffn_up.weight"], kind), kind)
    values = tensors["model.layers.0.mlp.up_proj.weight"]
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)


def test_configuration_is_that_of_the_file(tmp_path: Path):
    write_gguf(tmp_path / "a.gguf", more=["blk.0.attn_q.bias"], tied=False)
    model = GgufModel(tmp_path / "a.gguf")
    config = model.config()
    assert (config["model_type"], config["architectures"]) == ("llama", ["LlamaForCausalLM"])
    assert (config["hidden_size"], config["intermediate_size"]) == (HIDDEN, FEED_FORWARD)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 16)
    assert (config["max_position_embeddings"], config["rope_scaling"]) == (CONTEXT, None)
    assert (config["attention_bias"], config["mlp_bias"], config["tie_word_embeddings"]) == (True, False, False)
    assert model.generation_config() == {"eos_token_id": [2, 0]}


def test_llama3_frequencies_are_recognised(tmp_path: Path):
    # transformers' own llama3 divisors for theta 10000, head_dim 16, factor 8.
    factors = np.array([1, 1, 1, 1, 1, 1, 4.681482, 8], dtype=np.float32)
    write_gguf(tmp_path / "a.gguf", factors=factors)
    scaling = GgufModel(tmp_path / "a.gguf").config()["rope_scaling"]
    assert (scaling["rope_type"], scaling["factor"]) == ("llama3", 8.0)
    write_gguf(tmp_path / "b.gguf", factors=factors * 3)
    with pytest.raises(ModelError, match=r"b\.gguf: its RoPE frequencies are not those of Llama 3"):
        GgufModel(tmp_path / "b.gguf").config()


def test_files_that_cannot_be_served_say_why(tmp_path: Path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGML and nothing else")
    with pytest.raises(ModelError, match=r"a\.gguf: not a readable GGUF file"):
        GgufModel(path)
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ModelError, match=r"a\.gguf: not a readable GGUF file"):
        GgufModel(path)
    write_gguf(path, "mamba")
    with pytest.raises(ModelError, match="architecture 'mamba' is not supported; supported are llama, qwen2, qwen3"):
        GgufModel(path)
    write_gguf(path, more=["blk.0.ssm_a.weight"])
    with pytest.raises(ModelError, match=r"tensor blk\.0\.ssm_a\.weight does not belong to a model of Llama"):
        GgufModel(path)
    write_gguf(path, skip="embedding_length")
    with pytest.raises(ModelError, match=r"the key llama\.embedding_length is missing"):
        GgufModel(path).config()
