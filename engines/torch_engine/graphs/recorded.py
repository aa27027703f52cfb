"""Decode steps on processors as lists of calls: between kernels, a step of few requests has next to no Python.

A step is recorded once: each call of our kernels with its addresses, and each operation of torch with its tensors. All
that it makes stays where it is, so the same calls compute the next step from other inputs in the same places. What they
write to is memory that all records share, since one step is computed at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engines.torch_engine.layers import cpu_kernels

_WITHOUT_CONTENT = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
)


class StepRecorder:
    """A `decode_graphs.Capture` for processors."""

    def __init__(self) -> None:
        self._memory = StepMemory()

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Run once, and record it."""
        self._memory.num_taken = 0
        calls: list[cpu_kernels.Call] = []
        with cpu_kernels.noting(calls), _Operations(calls, self._memory) as operations:
            out = run()
        return RecordedStep(calls, operations.kept).replay, out


class RecordedStep:
    """Calls that compute a step, and the tensors that they read and write. The first replay is what was recorded."""

    def __init__(self, calls: Sequence[cpu_kernels.Call], kept: Sequence[object]) -> None:
        self._calls = calls
        self._kept = kept
        self._is_computed = True

    def replay(self) -> None:
        if not self._is_computed:
            cpu_kernels.call_all(self._calls)
        self._is_computed = False


class StepMemory:
    """Memory that a step writes to, in the order in which it asks for it. It grows twofold as steps have more rows."""

    def __init__(self) -> None:
        self.num_taken = 0
        self._taken: list[Tensor] = []

    def take(self, shape: Sequence[int]) -> Tensor:
        """Return floats [rows, ...]."""
        number, size = self.num_taken, torch.Size(shape).numel()
        self.num_taken += 1
        if number == len(self._taken):
            self._taken.append(torch.empty(0))
        if len(self._taken[number]) < size:
            num_rows = max(1, shape[0]) if shape else 1
            self._taken[number] = torch.empty(size // num_rows * (1 << (num_rows - 1).bit_length()))
        return self._taken[number][:size].view(tuple(shape))


class _Operations(TorchDispatchMode):
    """Notes torch's operations. ``kept``: the tensors that calls read and write."""

    def __init__(self, calls: list[cpu_kernels.Call], memory: StepMemory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: list[object] = []
        self._calls = calls
        self._memory = memory

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch would import its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, function: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out, again = function(*args, **kwargs), partial(function, *args, **kwargs)
        if function._schema.is_mutable:
            self._calls.append((again, ()))
        elif isinstance(out, Tensor):
            if not _is_view(out, args):
                out = self._placed(out)
                if function not in _WITHOUT_CONTENT:
                    self._calls.append((_renew, (out, again)))
        elif not isinstance(out, list | tuple) or not all(_is_view(one, args) for one in out):
            raise AssertionError(f"{function} cannot be recorded")
        self.kept.append((args, kwargs, out))
        return out

    def _placed(self, out: Tensor) -> Tensor:
        """Return the same in memory that is shared, if it is of floats that lie one after the other."""
        if out.dtype != torch.float32 or not out.is_contiguous():
            return out
        return self._memory.take(out.shape).copy_(out)


def _renew(out: Tensor, again: Callable[[], Tensor]) -> None:
    out.copy_(again())


def _is_view(out: Tensor, args: Sequence[Any]) -> bool:
    """Return whether it has the memory of one of those. Weights in a form of oneDNN's have none that could be told."""
    at = out.untyped_storage().data_ptr()
    tensors = [one for one in args if isinstance(one, Tensor) and one.layout is torch.strided]
    return any(one.untyped_storage().data_ptr() == at for one in tensors)
