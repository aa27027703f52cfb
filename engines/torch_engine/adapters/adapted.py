"""Products to which the adapters of a batch's rows are added: a model has one `Adapters`, which its layers ask.

A step says which rows have which adapter (`Adapters.of_rows`). Rows of one adapter are computed together, at each
projection that it has: two products of its rank, however many rows there are. The model's own product is one for all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from engines.adapters.folder import AdapterFolder
from engines.models.files.model_config import ModelConfig
from engines.torch_engine.adapters.factors import SiteFactors, SitePart, read_factors
from engines.torch_engine.layers.linear import Linear

Rows = slice | Tensor  # of one adapter in a batch
Groups = Sequence[tuple[list[SiteFactors | None], Rows]]
_AS_BEFORE: AbstractContextManager[None] = nullcontext()


class AdaptedLinear:
    """A `Linear` of the model, and what adapters add to it. ``site``: its place among those of its model."""

    def __init__(self, linear: Linear, site: int, adapters: "Adapters") -> None:
        self._linear = linear
        self._site = site
        self._adapters = adapters

    def __call__(self, x: Tensor) -> Tensor:
        out = self._linear(x)
        self._adapters.add_to(out, x, self._site)
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """Add both to ``residual`` in place."""
        self._linear.add_to(residual, x)
        self._adapters.add_to(residual, x, self._site)


class Adapters:
    """The adapters of one model that are loaded, by key, and those of the rows that are computed now."""

    def __init__(self, model: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._model = model
        self._dtype = dtype
        self._device = device
        self._sites: list[Sequence[SitePart]] = []
        self._loaded: dict[str, list[SiteFactors | None]] = {}
        self._rows: Mapping[int, Groups] = {}  # by number of rows
        self._some: Groups | None = None  # of the rows that one expert computes, while it does

    def __repr__(self) -> str:
        return f"<Adapters {sorted(self._loaded)}>"

    def wrap(self, linear: Linear, parts: Sequence[SitePart]) -> Linear:
        """Return a product of the model that adapters may add to."""
        self._sites.append(parts)
        return AdaptedLinear(linear, len(self._sites) - 1, self)

    def load(self, key: str, folder: AdapterFolder) -> None:
        """Any thread may call it. Raise `ModelError` if it cannot be read."""
        self._loaded[key] = read_factors(folder, self._model, self._sites, self._dtype, self._device)

    def drop(self, key: str) -> None:
        """A step that computes with it now goes on with it."""
        self._loaded.pop(key, None)

    @contextmanager
    def of_rows(self, keys: Sequence[str], lengths: Sequence[int], chosen: Sequence[int]) -> Iterator[None]:
        """Compute with these adapters meanwhile: of chunks with so many rows each; an empty key is none.

        ``chosen``: the rows, ascending, that go on alone at some layer.
        """
        if not any(keys):
            yield
            return
        by_row = [key for key, length in zip(keys, lengths, strict=True) for _ in range(length)]
        self._rows = {len(by_row): self._groups(by_row), len(chosen): self._groups([by_row[row] for row in chosen])}
        try:
            yield
        finally:
            self._rows = {}

    def among(self, num_rows: int, rows: Tensor) -> AbstractContextManager[None]:
        """Compute only these of so many rows meanwhile, in their order."""
        return self._among(num_rows, rows) if self._rows else _AS_BEFORE

    @contextmanager
    def _among(self, num_rows: int, rows: Tensor) -> Iterator[None]:
        self._some = [(own, places) for own, of in self._rows[num_rows] if len(places := _places(of, rows))]
        try:
            yield
        finally:
            self._some = None

    def _groups(self, by_row: Sequence[str]) -> list[tuple[list[SiteFactors | None], Rows]]:
        rows: dict[str, list[int]] = {}
        for row, key in enumerate(by_row):
            if key:
                rows.setdefault(key, []).append(row)
        return [(self._loaded[key], self._place(of_key)) for key, of_key in rows.items()]

    def _place(self, rows: Sequence[int]) -> Rows:
        """A slice if they are neighbours: then nothing is copied."""
        first, end = rows[0], rows[-1] + 1
        return slice(first, end) if end - first == len(rows) else torch.tensor(rows, device=self._device)

    def add_to(self, out: Tensor, x: Tensor, site: int) -> None:
        """Add what the rows' adapters have for a site."""
        if not self._rows:
            return
        for factors, rows in self._rows[len(x)] if self._some is None else self._some:
            own = factors[site]
            if own is None:
                continue
            if isinstance(rows, slice):
                own.add_to(out[rows], x[rows])
            else:
                part = out.index_select(0, rows)
                own.add_to(part, x.index_select(0, rows))
                out.index_copy_(0, rows, part)


def _places(of: Rows, rows: Tensor) -> Tensor:
    """Where rows of an adapter are among ``rows``."""
    is_its = (rows >= of.start) & (rows < of.stop) if isinstance(of, slice) else torch.isin(rows, of)
    return is_its.nonzero().flatten()
