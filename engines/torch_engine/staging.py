"""Weights in the host's memory, so that to load a model is to copy them: read from files before they are wanted."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import psutil
from safetensors import safe_open
from torch import Tensor

from engines.memory.staging_room import StagingRoom
from engines.models.files.block_kinds import BLOCKS_FILE
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.torch_engine.tensors import ReadTensor, files_of, read_tensor
from engines.torch_engine.weights import loaded_bytes
from mesh.topology.schema import EngineSpec, ServiceSpec

StagedTensors = Mapping[tuple[Path, str], Tensor]


class TorchStager:
    """Implements `Stager`. On an engine with a GPU the memory is pinned, which its copies take at full speed."""

    def __init__(self, engine: EngineSpec) -> None:
        self._room = StagingRoom(engine, lambda: psutil.virtual_memory().available)
        self._device = engine.device
        self._staged: dict[str, StagedTensors] = {}

    def __repr__(self) -> str:
        return f"<TorchStager {self._room}>"

    def stage(self, spec: ServiceSpec) -> int:
        """Return the bytes of the model once it is loaded. Raise `UserError` if its files cannot be read or there is no
        room for them.
        """
        folder = prepared_dir(spec.model)
        num_bytes = loaded_bytes(folder, ModelConfig.load(folder), spec.dtype, self._device)
        places = _tensors_of(folder)
        self._room.take(spec.name, sum(path.stat().st_size for path in {path for path, _ in places}))
        try:
            self._staged[spec.name] = {place: self._read(*place) for place in places}
        except BaseException:
            self._room.give_back(spec.name)
            raise
        return num_bytes

    def _read(self, path: Path, name: str) -> Tensor:
        tensor = read_tensor(path, name)
        return tensor.clone() if self._device == "cpu" else tensor.pin_memory()

    def unstage(self, service: str) -> None:
        """Forget them, if they are there."""
        self._staged.pop(service, None)
        self._room.give_back(service)

    def reader(self, service: str) -> ReadTensor:
        """Return what reads the tensors of a service: from memory if they are staged, else from their files."""
        staged = self._staged.get(service)
        return read_tensor if staged is None else partial(_find, staged)


def _find(staged: StagedTensors, path: Path, name: str) -> Tensor:
    tensor = staged.get((path, name))
    return read_tensor(path, name) if tensor is None else tensor


def _tensors_of(folder: Path) -> list[tuple[Path, str]]:
    """Where the tensors of a prepared model are, and their names there."""
    places = [(path, name) for name, path in files_of(folder).items()]
    blocks = folder / BLOCKS_FILE
    if blocks.exists():
        with safe_open(blocks, framework="pt") as file:
            places += [(blocks, name) for name in file.keys()]  # noqa: SIM118 - it is no dict
    return places
