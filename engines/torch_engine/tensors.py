"""The tensors of a model folder's safetensors files, one at a time."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engines.models.errors import ModelError

ReadTensor = Callable[[Path, str], Tensor]  # such as `read_tensor`


class Tensors:
    """Tensors by name, in the given dtype and on the given device, as ``read`` reads them. Raise `ModelError` for what
    is not there, cannot be read, or has another shape than it should.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device, read: ReadTensor) -> None:
        self._files: Mapping[str, Path] = files_of(folder)
        self._folder = folder
        self._dtype = dtype
        self._device = device
        self._read = read

    def has(self, name: str) -> bool:
        return name in self._files

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._files:
            raise ModelError(f"{self._folder}: the model has no tensor {name}")
        path = self._files[name]
        tensor = self._read(path, name)
        check_shape(path, name, tensor, shape)
        return tensor.to(self._device, self._dtype)


def files_of(folder: Path) -> dict[str, Path]:
    """Which file holds each tensor."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    single = folder / "model.safetensors"
    if not single.exists():
        raise ModelError(f"{folder}: neither model.safetensors nor model.safetensors.index.json is there")
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single)


def read_tensor(path: Path, name: str) -> Tensor:
    """Return a tensor as it lies in the file, mapped."""
    try:
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: {name} cannot be read: {error}") from error
    return tensor


def check_shape(path: Path, name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != expected:
        raise ModelError(f"{path}: {name} is {list(tensor.shape)}, by config.json it should be {list(expected)}")
