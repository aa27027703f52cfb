"""Bytes of weights that a library loads as files have them."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from engines.models.weight_size import stored_bytes


def test_floats_take_the_services_dtype_and_codes_stay(tmp_path: Path):
    weights = {
        "a": torch.zeros(3, 5, dtype=torch.bfloat16),
        "b": torch.zeros(7),
        "codes": torch.zeros(4, 2, dtype=torch.int32),
        "eights": torch.zeros(9, dtype=torch.float8_e4m3fn),
    }
    save_file(weights, tmp_path / "model.safetensors")
    assert stored_bytes(tmp_path, 2) == 2 * (15 + 7) + 4 * 8 + 9
    assert stored_bytes(tmp_path, 4) == 4 * (15 + 7) + 4 * 8 + 9
