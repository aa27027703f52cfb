"""A checkpoint's tensors, one at a time: what has been packed is dropped before the next is read."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engines.models.errors import ModelError
from engines.models.files.block_kinds import BLOCKS_FILE, KINDS, Form, Kind
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.layers.cpu_kernels import keeps_codes, packed_bytes, packs
from engines.torch_engine.layers.quantised_weights import Codes, WeightBlocks, coded, halved
from engines.torch_engine.parts import Part, products, shape_of, weight_bytes
from engines.torch_engine.tensors import ReadTensor, check_shape, files_of, read_tensor

BARE = "embed_tokens"
FORMS = {"int8": Form.BYTES, "bfloat16": Form.HALVES}  # of weights that come in floats


class Checkpoint:
    """Tensors of a prepared model folder, in the given dtype and on the given device, as ``read`` reads them.

    Files are opened anew for each tensor: mapped pages leave the process with the mapping. Raise `ModelError` for what
    is not there, cannot be read, or has another shape than the configuration says.
    """

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        read: ReadTensor = read_tensor,
    ) -> None:
        self._files = _by_own_name(files_of(folder))
        self._blocks = folder / BLOCKS_FILE
        self._kinds = _kinds(self._blocks)
        self._folder = folder
        self._config = config
        self._dtype = dtype
        self._read = read
        self.device = device

    def mapped(self, name: str) -> Tensor:
        """The tensor as it lies in the file, mapped: only what is touched becomes resident."""
        return self._stored(name, read_tensor)

    def get(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        return self._stored(name, self._read).to(self.device, dtype or self._dtype)

    def _stored(self, name: str, read: ReadTensor) -> Tensor:
        if name not in self._files:
            raise ModelError(f"{self._folder}: the model has no tensor {name}")
        path, stored = self._files[name]
        tensor = read(path, stored)
        check_shape(path, name, tensor, shape_of(name, self._config))
        return tensor

    def find(self, name: str) -> Tensor | None:
        return self.get(name) if name in self._files else None

    def weight(self, parts: Sequence[Part]) -> Tensor:
        """The weights of the parts one after the other, ``[out, in]``."""
        return torch.cat([part.ordered(self.get(f"{part.name}.weight")) for part in parts])

    def bias(self, parts: Sequence[Part]) -> Tensor | None:
        """Their biases ``[out]``, if all have one."""
        biases = [self.find(f"{part.name}.bias") for part in parts]
        there = [part.ordered(bias) for part, bias in zip(parts, biases, strict=True) if bias is not None]
        return torch.cat(there) if len(there) == len(parts) else None

    def codes(self, parts: Sequence[Part], dtype: str) -> list[Codes] | None:
        """Return what `CodeLinear` is to compute their product from; None: from floats. On CPU."""
        names = [f"{part.name}.weight" for part in parts]
        if code_outs(names, self._kinds, self._config, dtype) is None:
            return None
        return [self._codes_of(part, coded if dtype == "int8" else halved) for part in parts]

    def _codes_of(self, part: Part, code: Callable[[Tensor], Codes]) -> Codes:
        blocks = self._blocks_of(part)
        return code(part.ordered(self.get(f"{part.name}.weight"))) if blocks is None else blocks.codes()

    def _blocks_of(self, part: Part) -> WeightBlocks | None:
        """As they lie in the file, if they do."""
        name = f"{part.name}.weight"
        kind = self._kinds.get(name)
        if kind is None:
            return None
        rows = self._read(self._blocks, name)
        num_out, num_in = shape_of(name, self._config)
        check_shape(self._blocks, name, rows, (num_out, num_in // kind.num_weights * kind.num_bytes))
        return WeightBlocks(kind, part.ordered(rows))


def loaded_bytes(folder: Path, config: ModelConfig, dtype: str, device: str) -> int:
    """Return the bytes of the model's weights once they are loaded, most of which may stay in codes."""
    num_bytes = weight_bytes(config, dtype, device)
    if not keeps_codes(dtype, device):
        return num_bytes
    kinds = _kinds(folder / BLOCKS_FILE)
    for parts in products(config):
        names = [f"{part.name}.weight" for part in parts]
        outs = code_outs(names, kinds, config, dtype)
        if outs is not None:
            num_in = shape_of(names[0], config)[1]
            in_floats = sum([num_out for _, num_out in outs]) * num_in * torch.float32.itemsize
            num_bytes -= in_floats - packed_bytes(outs, num_in)
    return num_bytes


def code_outs(
    names: Sequence[str], kinds: Mapping[str, Kind], config: ModelConfig, dtype: str
) -> list[tuple[Form, int]] | None:
    """The forms in which weights that are computed as one are held, and their outputs; None: in floats."""
    outs = []
    for name in names:
        num_out, num_in = shape_of(name, config)
        if name in kinds:
            outs.append((kinds[name].form, num_out))
        elif dtype in FORMS and num_in % FORMS[dtype].group == 0:
            outs.append((FORMS[dtype], num_out))
    return outs if len(outs) == len(names) and packs(outs) else None


def _by_own_name(files: Mapping[str, Path]) -> dict[str, tuple[Path, str]]:
    """Where tensors are, and what they are called there. A model that was saved without what it generates with leaves
    out its own name.
    """
    places = {_own_name(name): (path, name) for name, path in files.items()}
    if f"{BARE}.weight" not in places:
        return places
    return {f"model.{name}": place for name, place in places.items()}


def _own_name(stored: str) -> str:
    """The name of a tensor in a model of text only, of one that a file with images' parts, too, names otherwise."""
    if stored.startswith("language_model."):
        return stored.removeprefix("language_model.")
    return stored.replace("model.language_model.", "model.", 1)


def _kinds(path: Path) -> dict[str, Kind]:
    """Of the blocks in the file, by name; none if there is no such file."""
    if not path.exists():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            return {name: KINDS[kind] for name, kind in file.metadata().items() if kind in KINDS}
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
