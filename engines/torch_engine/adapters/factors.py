"""The factors of one LoRA adapter for projections that are computed as one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.models.errors import ModelError


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
    folder: AdapterFolder, sites: Sequence[Sequence[SitePart]], dtype: torch.dtype, device: torch.device
) -> list[SiteFactors | None]:
    """Return an adapter's factors of each site; None where it has none.

    Raise `ModelError` if the file cannot be read, or the model has no such projection of its own.
    """
    names = {str(site): factors for site, factors in folder.sites.items()}
    known = {part.name for parts in sites for part in parts}
    if foreign := sorted(names.keys() - known):
        raise ModelError(f"{folder.path}: {foreign[0]} is no projection of its own in this model")
    path = folder.path / WEIGHTS_FILE
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {
                name: (file.get_tensor(found.a).to(device, dtype), file.get_tensor(found.b).to(device, dtype))
                for name, found in names.items()
            }
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    return [_site(parts, tensors, folder.config.scaling) for parts in sites]


def _site(
    parts: Sequence[SitePart], tensors: Mapping[str, tuple[Tensor, Tensor]], scaling: float
) -> SiteFactors | None:
    firsts, pieces, out, rank = list[Tensor](), list[_Piece](), 0, 0
    for part in parts:
        if part.name in tensors:
            a, b = tensors[part.name]
            outs, ranks = slice(out, out + part.num_out), slice(rank, rank + len(a))
            firsts.append(a)
            pieces.append(_Piece(outs, ranks, (scaling * part.ordered(b)).t().contiguous()))
            rank += len(a)
        out += part.num_out
    return SiteFactors(torch.cat(firsts), pieces) if firsts else None
