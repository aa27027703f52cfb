"""Rotary embedding: what a model card may ask for and what is refused."""

from dataclasses import replace

import pytest
import torch

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.layers.rotary import Rotary, interleaved, rotate


def test_an_unknown_kind_is_refused_with_the_known_ones(tiny):
    [rope] = ModelConfig.load(tiny).ropes
    with pytest.raises(ModelError, match=r"'dynamic'.*default, linear, llama3, yarn or longrope"):
        Rotary(replace(rope, scaling={"rope_type": "dynamic"}), 256, torch.device("cpu"))


def test_products_depend_on_the_distance_only(tiny):
    [rope] = ModelConfig.load(tiny).ropes
    rotary = Rotary(rope, 256, torch.device("cpu"))
    query, key = torch.randn(1, 1, 16), torch.randn(1, 1, 16)

    def product(query_position, key_position):
        one, other = query.clone(), key.clone()
        rotate(one, rotary.angles(torch.tensor([query_position])))
        rotate(other, rotary.angles(torch.tensor([key_position])))
        return (one * other).sum().item()

    assert product(20, 3) == pytest.approx(product(67, 50), abs=1e-4)
    assert product(20, 3) != pytest.approx(product(21, 3), abs=1e-4)


def test_interleaving_puts_pairs_side_by_side():
    assert interleaved(2, 4, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert interleaved(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]
