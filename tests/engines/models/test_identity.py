"""Folders hold the same model or they do not."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from engines.models.identity import identity_of
from tests.models.tiny_llama import write_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "one")


def test_the_same_model_is_the_same_in_other_files(model: Path, tmp_path: Path):
    sharded = write_tiny_model(tmp_path / "sharded")
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, own in shards.items():
        save_file({name: tensors[name] for name in own}, sharded / shard)
    index = {"weight_map": {name: shard for shard, own in shards.items() for name in own}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    assert identity_of(sharded) == identity_of(model) == identity_of(write_tiny_model(tmp_path / "again"))


def test_other_weights_are_another_model(model: Path, tmp_path: Path):
    assert identity_of(write_tiny_model(tmp_path / "other", seed=1)) != identity_of(model)


def test_one_tensor_that_was_trained_further_makes_another_model(model: Path):
    before, file = identity_of(model), model / "model.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[-1]
    tensors[name] = tensors[name] * 1.01
    save_file(tensors, file)
    assert identity_of(model) != before


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json"])
def test_another_tokenizer_or_shape_makes_another_model(model: Path, file: str):
    before, path = identity_of(model), model / file
    content = json.loads(path.read_text())
    content |= {"rope_theta": 9.0} if file == "config.json" else {"truncation": None, "version": "2.0"}
    path.write_text(json.dumps(content))
    assert identity_of(model) != before
