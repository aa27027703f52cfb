"""Names of tensors in GGUF files, and what a checkpoint calls them."""

import pytest

from engines.models.files.architectures import ARCHITECTURES
from engines.models.files.gguf_names import GgufName, checkpoint_name

LLAMA, MIXTRAL, PHI = (ARCHITECTURES[name] for name in ("llama", "mixtral", "phi3"))


@pytest.mark.parametrize(
    ("gguf", "checkpoint"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
        ("blk.0.attn_v.bias", "model.layers.0.self_attn.v_proj.bias"),
        ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"),
        ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"),
    ],
)
def test_a_tensor_of_llama(gguf: str, checkpoint: str):
    assert checkpoint_name(gguf, LLAMA) == GgufName(checkpoint)


@pytest.mark.parametrize(
    "gguf",
    [
        "blk.0.attn_qkv.weight",
        "attn_q.weight",
        "blk.0.output.weight",
        "blk.x.attn_q.weight",
        "blk.0.attn_q.scale",
        "rope_freqs",
    ],
)
def test_what_such_a_model_does_not_have_is_nothing(gguf: str):
    assert checkpoint_name(gguf, LLAMA) is None


def test_products_that_a_model_computes_as_one_have_one_name():
    assert checkpoint_name("blk.3.attn_qkv.weight", PHI) == GgufName("model.layers.3.self_attn.qkv_proj.weight")
    assert checkpoint_name("blk.3.attn_q.weight", PHI) is None
    assert checkpoint_name("blk.3.ffn_up.weight", PHI) == GgufName("model.layers.3.mlp.gate_up_proj.weight")
    assert checkpoint_name("blk.3.ffn_gate.weight", PHI) is None


def test_the_experts_of_a_layer_are_one_tensor():
    found = checkpoint_name("blk.1.ffn_down_exps.weight", MIXTRAL)
    assert found is not None
    assert found.is_of_experts
    assert found.name.startswith("model.layers.1.")
    assert found.name.format(7).count(".7.") == 1
