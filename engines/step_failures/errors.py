"""Decides by a step's failure whether its engine can go on. Pure; no library of a device is imported.

CUDA reports faults of kernels late and for ever: after a device assert or an illegal address each call of the process
fails with the same error, and nothing but a new process helps. Running out of memory leaves the device as it was.
"""

from collections.abc import Iterator
from enum import StrEnum

MOST_IN_A_ROW = 8  # steps of single requests that failed, and none was computed in between
LEAST_REQUESTS = 4  # that those were for

_MEMORY = ("outofmemoryerror", "memoryerror")
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "memoryallocation", "alloc_failed")
_DEVICE = ("acceleratorerror", "cudaruntimeerror", "cudadrivererror", "enginedeaderror")
_DEVICE_WORDS = (
    "cuda error",
    "hip error",
    "cudaerror",
    "cuda_error",
    "device-side assert",
    "illegal memory access",
    "unspecified launch failure",
    "uncorrectable ecc error",
    "_status_execution_failed",
    "_status_internal_error",
    "unhandled cuda error",
)


class StepError(StrEnum):
    ORDINARY = "ordinary"  # of one of its requests, as far as is known
    MEMORY = "memory"  # there was too little
    DEVICE = "device"  # which computes nothing any more in this process


def classify(error: BaseException) -> StepError:
    """Classify an error by its kind and words, and by those of the errors that it was raised from."""
    kinds = [_kind(one) for one in _chain(error)]
    return max(kinds, key=list(StepError).index)


def _kind(error: BaseException) -> StepError:
    names = [kind.__name__.lower() for kind in type(error).__mro__]
    text = str(error).lower()
    if any(name in _MEMORY for name in names) or any(word in text for word in _MEMORY_WORDS):
        return StepError.MEMORY
    if any(name in _DEVICE for name in names) or any(word in text for word in _DEVICE_WORDS):
        return StepError.DEVICE
    return StepError.ORDINARY


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


class StepFailures:
    """Counts steps that fail. One request can be the trouble of its steps; many in a row are their engine's."""

    def __init__(self) -> None:
        self._num_in_a_row = 0
        self._requests: set[str] = set()

    def __repr__(self) -> str:
        return f"<StepFailures {self._num_in_a_row} in a row, of {len(self._requests)} requests>"

    def computed(self) -> None:
        """Note that a step was computed."""
        self._num_in_a_row = 0
        self._requests.clear()

    def failed(self, requests: list[str]) -> bool:
        """A step of these was not. Whether the engine had better end; larger batches are tried in parts before."""
        if len(requests) == 1:
            self._num_in_a_row += 1
            self._requests.add(requests[0])
        return self._num_in_a_row >= MOST_IN_A_ROW and len(self._requests) >= LEAST_REQUESTS
