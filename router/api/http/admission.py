"""Bounds the bytes on their way in: bodies that are read, checked and tokenised, but not yet the router's."""

from collections import Counter
from typing import Final

from router.generation import Overloaded

MAX_BYTES: Final = 96 * 2**20  # of bodies; what is made of them takes as much again
MAX_BYTES_OF_ONE: Final = MAX_BYTES // 3  # of one peer
MAX_ENTERING: Final = 2048
MAX_ENTERING_OF_ONE: Final = 512
RETRY_AFTER_S: Final = 1.0


class BodyAdmission:
    """Bounds the memory of what enters. Bytes count as they arrive: who sends no body holds nothing."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_bytes_of_one: int = MAX_BYTES_OF_ONE,
        max_entering: int = MAX_ENTERING,
        max_entering_of_one: int = MAX_ENTERING_OF_ONE,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_bytes_of_one = max_bytes_of_one
        self._max_entering = max_entering
        self._max_entering_of_one = max_entering_of_one
        self._num_bytes = 0
        self._num_entering = 0
        self._bytes_of: Counter[str] = Counter()
        self._entering_of: Counter[str] = Counter()

    @classmethod
    def of_bodies(cls, max_body_bytes: int) -> "BodyAdmission":
        """Each peer may send at least two bodies of the largest size at once."""
        of_one = max(MAX_BYTES_OF_ONE, 2 * max_body_bytes)
        return cls(max(MAX_BYTES, 3 * of_one), of_one)

    def __repr__(self) -> str:
        return f"<BodyAdmission {self._num_entering} entering with {self._num_bytes} bytes>"

    def enter(self, peer: str) -> "AdmissionEntry":
        """Raise `Overloaded` if too many are entering. The entry is a context manager: it leaves at the end."""
        if self._num_entering >= self._max_entering or self._entering_of[peer] >= self._max_entering_of_one:
            raise Overloaded(f"{self._num_entering} requests are being read already", RETRY_AFTER_S)
        self._num_entering += 1
        self._entering_of[peer] += 1
        return AdmissionEntry(self, peer)

    def hold(self, peer: str, num_bytes: int) -> None:
        """Raise `Overloaded` if those bytes are too many."""
        if self._num_bytes + num_bytes > self._max_bytes or self._bytes_of[peer] + num_bytes > self._max_bytes_of_one:
            raise Overloaded(f"{self._num_bytes} bytes of requests are being read already", RETRY_AFTER_S)
        self._num_bytes += num_bytes
        self._bytes_of[peer] += num_bytes

    def leave(self, peer: str, num_bytes: int) -> None:
        self._num_entering -= 1
        self._num_bytes -= num_bytes
        _subtract(self._entering_of, peer, 1)
        _subtract(self._bytes_of, peer, num_bytes)


def _subtract(counter: Counter[str], peer: str, number: int) -> None:
    counter[peer] -= number
    if counter[peer] <= 0:
        del counter[peer]


class AdmissionEntry:
    """One request that is entering."""

    __slots__ = ("_admission", "_num_bytes", "_peer")

    def __init__(self, admission: BodyAdmission, peer: str) -> None:
        self._admission = admission
        self._peer = peer
        self._num_bytes = 0

    def hold(self, num_bytes: int) -> None:
        """Count so many more bytes that have arrived. Raise `Overloaded` if there is no room for them."""
        self._admission.hold(self._peer, num_bytes)
        self._num_bytes += num_bytes

    def __enter__(self) -> "AdmissionEntry":
        return self

    def __exit__(self, *_: object) -> None:
        self._admission.leave(self._peer, self._num_bytes)
