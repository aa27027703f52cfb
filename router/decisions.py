"""What was decided for recent requests, and why."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from router.policies.policy import Decision

KEPT = 2048


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """``attempt`` is the dispatch that was decided about; the decision carries its rule and the numbers it saw."""

    request: str
    at: float  # on the gateway's clock
    attempt: int
    decision: Decision


class DecisionLog:
    """The last decisions, oldest first."""

    def __init__(self, kept: int = KEPT) -> None:
        self._records: deque[DecisionRecord] = deque(maxlen=kept)

    def __iter__(self) -> Iterator[DecisionRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: DecisionRecord) -> None:
        self._records.append(record)

    def of(self, request: str) -> list[DecisionRecord]:
        return [record for record in self._records if record.request == request]
