"""The factors of one LoRA adapter for projections that are computed as one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.adapters.sites import Factors
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class SitePart:
    """One of the projections of a site. ``ordered`` puts rows of its weight into the order of its outputs."""

    name: str  # layers.3.self_attn.q_proj
    num_out: int
    ordered: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The second factor of one projection. ``outs``: its outputs among the site's; ``ranks``: its columns of the first
    product.
    """

    outs: slice
    ranks: slice
    b: Tensor  # [rank, out], with the scaling


@dataclass(frozen=True, slots=True)
class SiteFactors:
    """What an adapter adds to the outputs of one site. ``a`` [ranks, in]: of all its projections."""

    a: Tensor
    pieces: Sequence[_Piece]

    def add_to(self, out: Tensor, x: Tensor) -> None:
        """Add ``(x @ a.T) @ b`` to ``out`` [rows, outs] in place, projection by projection."""
        inner = torch.mm(x, self.a.t())
        for piece in self.pieces:
            out[:, piece.outs].addmm_(inner[:, piece.ranks], piece.b)


def read_factors(
    folder: AdapterFolder,
    model: ModelConfig,
    sites: Sequence[Sequence[SitePart]],
    dtype: torch.dtype,
    device: torch.device,
) -> list[SiteFactors | None]:
    """Return an adapter's factors of each site; None where it has none.

    Raise `ModelError` if the file cannot be read, or the model has no such projection of its own.
    """
    names = {str(site): factors for site, factors in folder.sites(model).items()}
    known = {part.name for parts in sites for part in parts}
    if foreign := sorted(names.keys() - known):
        raise ModelError(f"{folder.path}: {foreign[0]} is no projection of its own in this model")
    path = folder.path / WEIGHTS_FILE
    try:
        with safe_open(path, framework="pt") as file:
            own = _Reader(file.get_tensor, dtype, device)
            return [_site(parts, names, own) for parts in sites]
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error


class _Reader:
    """Reads factors of one file, those of stacked experts at once."""

    def __init__(self, read: Callable[[str], Tensor], dtype: torch.dtype, device: torch.device) -> None:
        self._read = read
        self._dtype = dtype
        self._device = device
        self._name, self._stacked = "", torch.empty(0)

    def a(self, factors: Factors) -> Tensor:
        """Return the first factor ``[rank, in]``."""
        if factors.expert is None:
            return self._moved(self._read(factors.a))
        rows = self._of_all(factors.a).view(factors.num_stacked, factors.rank, factors.num_in)
        return self._moved(rows[factors.expert])

    def b(self, factors: Factors) -> Tensor:
        """Return the second factor ``[out, rank]``."""
        if factors.expert is None:
            return self._moved(self._read(factors.b))
        columns = self._of_all(factors.b).view(-1, factors.rank, factors.num_stacked)[:, :, factors.expert]
        return self._moved(columns.chunk(factors.num_parts)[factors.part])

    def _of_all(self, name: str) -> Tensor:
        if name != self._name:
            self._name, self._stacked = name, self._read(name)
        return self._stacked

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, self._dtype, copy=True)  # a part of a tensor would keep all of it


def _site(parts: Sequence[SitePart], names: Mapping[str, Factors], own: _Reader) -> SiteFactors | None:
    """Projections that share a first factor have it once."""
    firsts, pieces, out = dict[tuple[str, int | None], tuple[slice, Tensor]](), list[_Piece](), 0
    num_ranks = 0
    for part in parts:
        factors = names.get(part.name)
        if factors is not None:
            key = factors.a, factors.expert
            if key not in firsts:
                firsts[key] = slice(num_ranks, num_ranks + factors.rank), own.a(factors)
                num_ranks += factors.rank
            b = (factors.scaling * part.ordered(own.b(factors))).t().contiguous()
            pieces.append(_Piece(slice(out, out + part.num_out), firsts[key][0], b))
        out += part.num_out
    return SiteFactors(torch.cat([a for _, a in firsts.values()]), pieces) if firsts else None
