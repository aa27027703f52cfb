"""Models whose file is quantised: engines compute with its blocks, and answer what float32 weights answer."""

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors import safe_open

from engines.models.cache import Cache
from engines.models.errors import ModelError
from engines.models.files.block_kinds import BLOCKS_FILE, KINDS, Form
from engines.models.files.model_config import ModelConfig
from engines.models.prepare import prepare
from engines.models.store import check_folder
from engines.torch_engine.blocks import linear
from engines.torch_engine.layers import cpu_kernels
from engines.torch_engine.layers.cpu_kernels import CodeLinear
from engines.torch_engine.layers.linear import PackedLinear
from engines.torch_engine.layers.quantised_weights import Codes
from engines.torch_engine.parts import Part, attention_out, dense_mlp, query_key_value, weight_bytes
from engines.torch_engine.weights import Checkpoint, loaded_bytes
from tests.engines.models.tiny import ignore, write_gguf
from tests.engines.torch_engine.compiled import compiled

PROMPT = torch.randint(3, 199, (40,), generator=torch.Generator().manual_seed(1)).tolist()


# As llama.cpp's Q4_K_M: what matters more has more bits.
MIXED = {
    "token_embd": "Q6_K",
    "attn_q": "Q4_K",
    "attn_k": "Q4_K",
    "attn_v": "Q6_K",
    "attn_output": "Q5_K",
    "ffn_gate": "Q4_K",
    "ffn_up": "Q4_0",
    "ffn_down": "Q5_1",
}


# Of a weight: its code and its share of a scale and a minimum in float32.
HELD_BYTES = {
    Form.NIBBLES: 0.5 + 8 / 32,
    Form.BYTES: 1 + 4 / 32,
    Form.BYTES_MINIMA: 1 + 8 / 32,
    Form.BYTES_16: 1 + 4 / 16,
}


@pytest.fixture(params=[*KINDS, "mixed"])
def quantized(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "mixed":
        kinds = {name: GGMLQuantizationType[kind] for name, kind in MIXED.items()}
        write_gguf(tmp_path / "tiny.gguf", quantization=kinds, hidden=256, feed_forward=256)
    else:
        size = {"hidden": 256, "feed_forward": 512} if KINDS[request.param].num_weights == 256 else {}
        write_gguf(tmp_path / "tiny.gguf", quantization=GGMLQuantizationType[request.param], **size)
    return prepare(str(tmp_path / "tiny.gguf"), ignore, Cache(tmp_path / "cache"))


def checkpoint_of(folder: Path) -> Checkpoint:
    return Checkpoint(folder, ModelConfig.load(folder), torch.float32, torch.device("cpu"))


def values_of(weight: Codes) -> torch.Tensor:
    groups = weight.codes.view(torch.int8).float().view(weight.num_out, -1, weight.form.group)
    values = weight.scales[..., None] * groups
    return (values if weight.minima is None else values + weight.minima[..., None]).flatten(1)


@compiled
def test_codes_are_those_of_the_weights_to_the_last_bit(quantized):
    checkpoint, config = checkpoint_of(quantized), ModelConfig.load(quantized)
    for parts in (query_key_value(config, 1), attention_out(config, 1), dense_mlp(config, 1).up):
        for dtype in ("float32", "int8"):
            codes = checkpoint.codes(parts, dtype)
            assert codes is not None
            assert torch.equal(torch.cat([values_of(part) for part in codes]), checkpoint.weight(parts))


def test_files_of_floats_have_no_blocks(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", quantization=GGMLQuantizationType.F16)
    folder = prepare(str(tmp_path / "tiny.gguf"), ignore, Cache(tmp_path / "cache"))
    assert not (folder / BLOCKS_FILE).exists()
    parts = [Part("model.layers.0.self_attn.o_proj")]
    assert checkpoint_of(folder).codes(parts, "float32") is None


@compiled
def test_weights_in_floats_become_codes_of_8_bits_for_int8(tmp_path):
    """The largest of 32 is 127, so none is off by more than half of a 127th of it."""
    write_gguf(tmp_path / "tiny.gguf")
    folder = prepare(str(tmp_path / "tiny.gguf"), ignore, Cache(tmp_path / "cache"))
    checkpoint = checkpoint_of(folder)
    parts = dense_mlp(ModelConfig.load(folder), 0).up
    [codes] = {part.form for part in checkpoint.codes(parts, "int8")}
    assert codes is Form.BYTES
    weight = checkpoint.weight(parts)
    values = torch.cat([values_of(part) for part in checkpoint.codes(parts, "int8")])
    largest = weight.view(len(weight), -1, 32).abs().amax(dim=2).repeat_interleave(32, dim=1)
    assert ((values - weight).abs() <= 1.0001 * largest / 127 / 2).all()


@compiled
def test_what_is_kept_in_blocks(quantized):
    checkpoint, config = checkpoint_of(quantized), ModelConfig.load(quantized)
    mlp = dense_mlp(config, 0)
    for parts in (query_key_value(config, 0), mlp.up, mlp.down):
        assert isinstance(linear(checkpoint, parts, "float32"), CodeLinear)
    head = [Part("model.embed_tokens")]  # its 266 rows are no multiple of 64
    assert isinstance(linear(checkpoint, head, "float32"), PackedLinear)


@pytest.mark.parametrize("has_kernels", [pytest.param(True, marks=compiled), False])
def test_greedy_tokens_are_those_of_transformers(quantized, make_runner, greedy, monkeypatch, has_kernels):
    import transformers

    if not has_kernels:
        monkeypatch.setattr(cpu_kernels, "KERNELS", "")
    model = transformers.AutoModelForCausalLM.from_pretrained(quantized, dtype=torch.float32)
    prompt = torch.tensor([PROMPT])
    expected = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=30, do_sample=False, eos_token_id=None
    )[0, len(PROMPT) :].tolist()
    runner = make_runner(quantized)
    assert runner.generate("whole", PROMPT, greedy(), 30) == expected
    assert runner.generate("in chunks", PROMPT, greedy(), 30, split=7) == expected


@compiled
def test_loaded_weights_have_the_size_that_is_said(quantized, monkeypatch):
    config = ModelConfig.load(quantized)
    with safe_open(quantized / "model.safetensors", "pt") as file:
        names = [name for name in file.keys() if name.endswith("_proj.weight")]  # noqa: SIM118 - it is no mapping
        items = {name: file.get_tensor(name).numel() for name in names}
    with safe_open(quantized / BLOCKS_FILE, "pt") as file:
        forms = {name: KINDS[kind].form for name, kind in file.metadata().items() if kind in KINDS}
    in_blocks = 0.0
    for name, num_items in items.items():
        in_blocks += num_items * HELD_BYTES[forms[name]]
    head = 4 * config.vocab_size * config.hidden_size
    assert loaded_bytes(quantized, config, "float32", "cpu") == in_blocks + head
    assert loaded_bytes(quantized, config, "int8", "cpu") == in_blocks + head
    monkeypatch.setattr(cpu_kernels, "KERNELS", "")
    assert loaded_bytes(quantized, config, "float32", "cpu") == weight_bytes(config, "float32", "cpu")


def test_no_int8_without_kernels(tiny, make_runner, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "KERNELS", "")
    with pytest.raises(
        ModelError, match=r"int8 needs the kernels that a C compiler makes.*; without one, take float32"
    ):
        make_runner(tiny, "int8")


def test_blocks_that_are_damaged(quantized):
    path = quantized / BLOCKS_FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=rf"{BLOCKS_FILE}: cannot be read"):
        checkpoint_of(quantized)
    with pytest.raises(ModelError, match=rf"{BLOCKS_FILE}: damaged: it has"):
        check_folder(quantized)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match=rf"{BLOCKS_FILE}: cannot be read"):
        checkpoint_of(quantized)
