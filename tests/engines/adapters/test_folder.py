"""Reading an adapter's folder, and whether it fits a model."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.adapters.sites import Module
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from tests.engines.adapters.writing import write_adapter
from tests.engines.torch_engine.conftest import tiny as tiny

PREFIX = "base_model.model.model.layers"


@pytest.fixture
def model(tiny: Path) -> ModelConfig:
    return ModelConfig.load(tiny)


def change(folder: Path, **tensors: object) -> Path:
    """Other tensors in the file; None takes one out."""
    own = load_file(folder / WEIGHTS_FILE)
    for name, tensor in tensors.items():
        own.pop(name, None)
        if tensor is not None:
            own[name] = tensor
    save_file(own, folder / WEIGHTS_FILE)
    return folder


def test_its_sites_and_size_are_those_of_the_file(tmp_path: Path, model: ModelConfig):
    folder = AdapterFolder.read(write_adapter(tmp_path, model, 4, targets=["q_proj", "down_proj"], layers=[1]))
    assert list(folder.modules) == [Module(1, "mlp.down_proj"), Module(1, "self_attn.q_proj")]
    assert folder.num_weights == 4 * (2 * 96 + 2 * 96)
    folder.check_fits(model, "chat")


def test_another_file_has_another_digest(tmp_path: Path, model: ModelConfig):
    folders = [write_adapter(tmp_path / str(seed), model, seed=seed % 2) for seed in range(3)]
    first, other, same = (AdapterFolder.read(folder).digest for folder in folders)
    assert first == same != other


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("base_model.model.lm_head.lora_A.weight", np.zeros((4, 96), np.float32), "'base_model.model.lm_head.lora_A"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", np.zeros((4, 9), np.float32), "embed_tokens"),
        (f"{PREFIX}.0.self_attn.q_proj.lora_magnitude_vector", np.zeros(96, np.float32), "lora_magnitude_vector"),
        (f"{PREFIX}.0.mlp.experts.lora_A.weight", np.zeros((4, 96), np.float32), "mlp.experts.lora_A"),
        (f"{PREFIX}.0.mlp.gate.lora_A.weight", np.zeros((4, 96), np.float32), "mlp.gate.lora_A"),
        (f"{PREFIX}.0.self_attn.q_proj.lora_A.weight", None, "one of lora_A and lora_B; both are wanted"),
        (
            f"{PREFIX}.0.self_attn.q_proj.lora_A.weight",
            np.zeros((5, 96), np.float32),
            "should be [out, 4] by [4, in]",
        ),
        (f"{PREFIX}.0.self_attn.q_proj.lora_A.weight", np.zeros(4, np.float32), "[96, 4] by [4];"),
        (f"{PREFIX}.0.self_attn.q_proj.lora_A.weight", np.zeros((4, 96), np.int8), "of type I8; use one of F32"),
    ],
)
def test_tensors_that_are_not_served_are_named(
    tmp_path: Path, model: ModelConfig, name: str, tensor: object, words: str
):
    with pytest.raises(ModelError) as refused:
        AdapterFolder.read(change(write_adapter(tmp_path, model), **{name: tensor}))
    assert words in str(refused.value)


def test_a_damaged_file_is_said_so(tmp_path: Path, model: ModelConfig):
    file = write_adapter(tmp_path, model) / WEIGHTS_FILE
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ModelError, match="damaged: it has"):
        AdapterFolder.read(tmp_path)


def test_one_of_another_model_does_not_fit(tmp_path: Path, model: ModelConfig):
    from dataclasses import replace

    folder = AdapterFolder.read(write_adapter(tmp_path, model, targets=["up_proj"]))
    with pytest.raises(ModelError, match=r"layers\.0\.mlp\.up_proj is \[96, 96\], and that of chat is \[128, 96\]"):
        folder.check_fits(replace(model, intermediate_size=128), "chat")
    with pytest.raises(ModelError, match="has a layer 2, and chat has 2 layers"):
        folder.check_fits(replace(model, num_layers=2), "chat")
