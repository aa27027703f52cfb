"""Writes what became of each request, as one line of JSON each: no text and no tokens.

A gateway's recording begins with a `Header`, and has another one each time that the gateway started again.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from mesh.wire.requests import PRIORITY_BATCH

RECORDING_FORMAT = 1
PROMPT_BLOCK = 512  # tokens that one of ``hash_ids`` stands for, as in Mooncake's traces


class Outcome(StrEnum):
    FINISHED = "finished"
    REJECTED = "rejected"  # not in time: overloaded, or no engine
    FAILED = "failed"
    CANCELLED = "cancelled"  # nobody wanted the rest: its client went away, or another choice of its call failed


class Header(msgspec.Struct, frozen=True):
    """Begins a segment of a recording. Equal ``hash_ids`` mean equal prompts within one segment only."""

    recording: int  # `RECORDING_FORMAT`
    topology: str
    gateway: str
    started_at: datetime  # the segment's arrivals count from then


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request. ``arrived_s`` counts from the start of the trace; durations are seconds from the arrival.

    ``tpot_s`` is None for answers of one token. A trace can be made of records: see `simulation.loads.traces`.
    """

    id: str
    arrived_s: float
    service: str
    input_tokens: int
    output_tokens: int  # generated if it finished, else asked for
    slo_ttft_s: float
    slo_tpot_s: float
    outcome: Outcome
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    queued_s: float | None = None  # until the dispatch that brought the first token
    cached_tokens: int = 0
    prefill_engine: str | None = None
    decode_engine: str | None = None
    rule: str | None = None
    predicted_ttft_s: float | None = None  # from the last dispatch on
    attempts: int = 0
    reason: str | None = None  # why it did not finish
    priority: int | None = None
    partial_tokens: int = 0  # generated, if it did not finish
    hash_ids: tuple[int, ...] = ()  # of the prompt's blocks; equal ones are the same block after the same past

    @property
    def is_filler(self) -> bool:
        """Return whether nothing was promised for it."""
        return self.priority is not None and self.priority <= PRIORITY_BATCH

    @property
    def meets_ttft(self) -> bool:
        return self.ttft_s is not None and self.ttft_s <= self.slo_ttft_s

    @property
    def meets_tpot(self) -> bool:
        return self.outcome is Outcome.FINISHED and (self.tpot_s is None or self.tpot_s <= self.slo_tpot_s)

    @property
    def meets_slo(self) -> bool:
        return self.meets_ttft and self.meets_tpot


_ENCODER = msgspec.json.Encoder()


def encode_line(line: Header | Record) -> bytes:
    return _ENCODER.encode(line) + b"\n"
