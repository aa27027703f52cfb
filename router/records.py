"""What became of each request, as one line of JSON each."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec


class Outcome(StrEnum):
    FINISHED = "finished"
    REJECTED = "rejected"  # not in time: overloaded, or no engine
    FAILED = "failed"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request. ``arrived_s`` counts from the start of the trace; durations are seconds from the arrival.

    ``tpot_s`` is None for answers of one token. A trace can be made of records: see `bench.simulation.traces`.
    """

    id: str
    arrived_s: float
    service: str
    input_tokens: int
    output_tokens: int
    slo_ttft_s: float
    slo_tpot_s: float
    outcome: Outcome
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    queued_s: float | None = None  # in the gateway, before the last dispatch
    cached_tokens: int = 0
    prefill_engine: str | None = None
    decode_engine: str | None = None
    rule: str | None = None
    predicted_ttft_s: float | None = None  # from the last dispatch on
    attempts: int = 0
    reason: str | None = None  # why it did not finish

    @property
    def meets_ttft(self) -> bool:
        return self.ttft_s is not None and self.ttft_s <= self.slo_ttft_s

    @property
    def meets_tpot(self) -> bool:
        return self.outcome is Outcome.FINISHED and (self.tpot_s is None or self.tpot_s <= self.slo_tpot_s)

    @property
    def meets_slo(self) -> bool:
        return self.meets_ttft and self.meets_tpot


def write_records(path: Path, records: Iterable[Record]) -> None:
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        file.writelines(encoder.encode(record) + b"\n" for record in records)
