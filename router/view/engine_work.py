"""Holds work on an engine as a gateway knows it: what the engine told of, and what was sent there since."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple, overload

import msgspec

from mesh.wire.status import UNPASSED, PendingPrefill


class Reservation(msgspec.Struct, frozen=True):
    """Work that this gateway sent to an engine and the engine's last status does not count yet."""

    request: str
    engine: str
    service: str
    num_tokens: int  # of KV that it will hold
    prefill_s: float | None  # predicted; None: the engine only decodes it
    due_at: float = inf  # when its first token is
    priority: int = 0
    answer_tokens: int = 0  # expected in all, if it decodes there; 0: it does not, or nobody asked
    num_generated: int = 0  # of ``num_tokens``
    tpot_slo_s: float = inf
    joins_at: float = inf  # the decodes there, as predicted
    least_tokens: int = 0  # in all, that its answer will hardly be shorter than; 0: not known


class Newcomer(NamedTuple):
    """One that was sent to decode on an engine. ``num_steps``: that it is sure to have there, or nearly so."""

    at: float  # when its first token is predicted
    num_steps: int
    tpot_slo_s: float


class Coming(NamedTuple):
    """One that is prefilled elsewhere and was sent to decode on an engine."""

    at: float  # when its first token is predicted
    tpot_slo_s: float


class DuePrefill(NamedTuple):
    """One that is not done, as engines order them that go by deadline."""

    importance: int  # the priority, negated
    due_at: float
    left_s: float  # predicted, when its engine told
    running_s: float = 0.0  # of that, in the step that ran then: nobody passes it


class Prefills(Sequence[DuePrefill]):
    """Some, in their order: put into it when they are first looked at, as most policies never do."""

    __slots__ = ("_at", "_in_order", "_keeps_order", "_sent", "_told")

    def __init__(
        self, told: Sequence[PendingPrefill], at: float, sent: Sequence[Reservation], *, keeps_order: bool = False
    ) -> None:
        """Count prefills by the engine at that time, and sent there since: at least one of them is. ``keeps_order``:
        nobody passes those that were sent.
        """
        self._told = told
        self._at = at
        self._sent = sent
        self._keeps_order = keeps_order
        self._in_order: tuple[DuePrefill, ...] = ()

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> tuple[DuePrefill, ...]:
        if not self._in_order:
            told = [DuePrefill(-one.priority, self._at + one.due_s, one.left_s, one.running_s) for one in self._told]
            sent = [
                DuePrefill(-UNPASSED if self._keeps_order else -one.priority, one.due_at, one.prefill_s)
                for one in self._sent
                if one.prefill_s is not None
            ]
            self._in_order = tuple(sorted(told + sent))
        return self._in_order

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[DuePrefill]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> DuePrefill: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[DuePrefill]: ...

    def __getitem__(self, index: int | slice) -> DuePrefill | Sequence[DuePrefill]:
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, Prefills) else other)

    def __hash__(self) -> int:
        return hash(self._all())
