"""Rotary embedding: what a model card may ask for and what is refused."""

from dataclasses import replace

import pytest
import torch

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.layers.rotary import Rotary, interleave, rotate


def test_an_unknown_kind_is_refused_with_the_known_ones(tiny):
    config = replace(ModelConfig.load(tiny), rope_scaling={"rope_type": "longrope"})
    with pytest.raises(ModelError, match=r"'longrope'.*default, linear, llama3 or yarn"):
        Rotary(config, torch.device("cpu"))


def test_products_depend_on_the_distance_only(tiny):
    rotary = Rotary(ModelConfig.load(tiny), torch.device("cpu"))
    query, key = torch.randn(1, 1, 16), torch.randn(1, 1, 16)

    def product(query_position, key_position):
        one, other = query.clone(), key.clone()
        rotate(one, rotary.angles(torch.tensor([query_position])))
        rotate(other, rotary.angles(torch.tensor([key_position])))
        return (one * other).sum().item()

    assert product(20, 3) == pytest.approx(product(67, 50), abs=1e-4)
    assert product(20, 3) != pytest.approx(product(21, 3), abs=1e-4)


def test_interleaving_puts_pairs_side_by_side():
    weight = torch.arange(8).view(8, 1).expand(8, 3)
    assert interleave(weight, 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
