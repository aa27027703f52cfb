"""Records of a long run, packed: what reports ask of each takes 64 bytes, where a `Record` takes half a kilobyte."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from math import isnan, nan
from typing import NamedTuple, overload

from router.history.records import Outcome, Record

OPTIONAL = ("ttft_s", "tpot_s", "e2e_s", "queued_s")  # None is packed as NaN


class _Kind(NamedTuple):
    """What many records have in common. ``reason``: of failures only; those of refusals are in no report."""

    service: str
    outcome: Outcome
    priority: int | None
    reason: str | None


class PackedRecords(Sequence[Record]):
    """Gives back records with what reports ask for: those have no ids, no engines and no predictions."""

    def __init__(self) -> None:
        self._arrived_s = array("d")
        self._slos = (array("d"), array("d"))
        self._latencies_s = tuple(array("d") for _ in OPTIONAL)
        self._output_tokens = array("I")
        self._kind_of = array("I")
        self._kinds: list[_Kind] = []
        self._numbers: dict[_Kind, int] = {}  # in ``_kinds``

    def __repr__(self) -> str:
        return f"<PackedRecords {len(self)} of {len(self._kinds)} kinds>"

    def append(self, record: Record) -> None:
        reason = record.reason if record.outcome is Outcome.FAILED else None
        self._arrived_s.append(record.arrived_s)
        self._slos[0].append(record.slo_ttft_s)
        self._slos[1].append(record.slo_tpot_s)
        for packed, name in zip(self._latencies_s, OPTIONAL, strict=True):
            latency_s = getattr(record, name)
            packed.append(nan if latency_s is None else latency_s)
        self._output_tokens.append(record.output_tokens)
        self._kind_of.append(self._number_of(_Kind(record.service, record.outcome, record.priority, reason)))

    def extend(self, others: "PackedRecords") -> None:
        numbers = array("I", (self._number_of(kind) for kind in others._kinds))
        self._kind_of.extend(map(numbers.__getitem__, others._kind_of))
        self._arrived_s.extend(others._arrived_s)
        self._output_tokens.extend(others._output_tokens)
        for mine, theirs in zip((*self._slos, *self._latencies_s), (*others._slos, *others._latencies_s), strict=True):
            mine.extend(theirs)

    def _number_of(self, kind: _Kind) -> int:
        number = self._numbers.setdefault(kind, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(kind)
        return number

    def __len__(self) -> int:
        return len(self._arrived_s)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> "RecordSubset": ...

    def __getitem__(self, index: int | slice) -> "Record | RecordSubset":
        if isinstance(index, slice):
            return RecordSubset(self, array("I", range(*index.indices(len(self)))))
        kind = self._kinds[self._kind_of[index]]
        ttft_s, tpot_s, e2e_s, queued_s = (packed[index] for packed in self._latencies_s)
        return Record(
            "",
            self._arrived_s[index],
            kind.service,
            0,
            self._output_tokens[index],
            self._slos[0][index],
            self._slos[1][index],
            kind.outcome,
            None if isnan(ttft_s) else ttft_s,
            None if isnan(tpot_s) else tpot_s,
            None if isnan(e2e_s) else e2e_s,
            None if isnan(queued_s) else queued_s,
            reason=kind.reason,
            priority=kind.priority,
        )


class RecordSubset(Sequence[Record]):
    """Some of the records of a sequence, by their indices there: four bytes each."""

    def __init__(self, records: Sequence[Record], indices: "array[int]") -> None:
        self._records = records
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> "RecordSubset": ...

    def __getitem__(self, index: int | slice) -> "Record | RecordSubset":
        if isinstance(index, slice):
            return RecordSubset(self._records, self._indices[index])
        return self._records[self._indices[index]]

    def __iter__(self) -> Iterator[Record]:
        return map(self._records.__getitem__, self._indices)


def part_of(records: Sequence[Record], belongs: Callable[[Record], bool]) -> RecordSubset:
    """Return those that belong to it, in their order."""
    return RecordSubset(records, array("I", (index for index, record in enumerate(records) if belongs(record))))


def by_arrival(records: Sequence[Record]) -> RecordSubset:
    """Return them in order of arrival; those that arrived together stay in their order."""
    arrived_s = array("d", (record.arrived_s for record in records))
    return RecordSubset(records, array("I", sorted(range(len(records)), key=arrived_s.__getitem__)))
