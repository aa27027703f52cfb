"""MLPs, which follow attention in a layer: gated and plain MLPs, and MLPs of experts that a router chooses."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engines.torch_engine.layers.cpu_kernels import gated, gates
from engines.torch_engine.layers.linear import Linear

Activation = Callable[[Tensor], Tensor]

_silu = partial(functional.silu, inplace=True)
_gelu_tanh = partial(functional.gelu, approximate="tanh")
ACTIVATIONS: Mapping[str, Activation] = {
    "silu": _silu,
    "swish": _silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "relu": partial(functional.relu, inplace=True),
}


class Mlp(Protocol):
    def __call__(self, x: Tensor) -> Tensor: ...

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """Add its result to ``residual`` in place."""


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """``down(activate(gate(x)) * up(x))`` (SwiGLU and its kin, Shazeer, 2020), gate and up in one product."""

    gate_up: Linear
    down: Linear
    activate: Activation

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self._inner(x))

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        self.down.add_to(residual, self._inner(x))

    def _inner(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)
        if self.activate is _silu and gates(both):
            return gated(both)
        gate, up = both.chunk(2, dim=-1)
        return self.activate(gate).mul_(up)


@dataclass(frozen=True, slots=True)
class PlainMlp:
    """``down(activate(up(x)))``"""

    up: Linear
    down: Linear
    activate: Activation

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.activate(self.up(x)))

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        self.down.add_to(residual, self.activate(self.up(x)))


class ChoosesRows(Protocol):
    """What computes some rows of a batch otherwise: LoRA adapters do."""

    def among(self, num_rows: int, rows: Tensor) -> AbstractContextManager[None]:
        """Compute only these of so many rows meanwhile."""


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert that computes every token. ``gate`` [1, hidden]: how much its result counts."""

    mlp: Mlp
    gate: Linear

    def __call__(self, x: Tensor) -> Tensor:
        return self.mlp(x).mul_(self.gate(x).sigmoid_())


@dataclass(frozen=True, slots=True)
class SparseMlp:
    """Experts of which a router chooses ``num_chosen`` for each token (Shazeer et al., 2017)."""

    router: Linear
    experts: Sequence[Mlp]
    num_chosen: int
    normalises: bool
    shared: SharedExpert | None
    adapters: ChoosesRows

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.zeros_like(x) if self.shared is None else self.shared(x)
        self._add(out, x)
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        residual.add_(self(x))

    def _add(self, out: Tensor, x: Tensor) -> None:
        weights, chosen = self.router(x).float().softmax(dim=-1).topk(self.num_chosen, dim=-1)
        if self.normalises:
            weights /= weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        for number in torch.unique(chosen).tolist():
            rows, places = (chosen == number).nonzero(as_tuple=True)
            with self.adapters.among(len(x), rows):
                own = self.experts[number](x[rows])
            out.index_add_(0, rows, own.mul_(weights[rows, places, None]))
