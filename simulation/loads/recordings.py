"""Records as requests of a trace: those of a simulation, and a gateway's recording with its segments.

What was not answered arrives all the same. A rejected or failed request asks for as many tokens as it asked for, a
cancelled one for as many as it had got.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from router.history.records import RECORDING_FORMAT, Outcome
from simulation.loads.rows import Row
from simulation.loads.trace_request import RecordedAnswer, TraceRequest

HEADER_MARK = "recording"  # the column that only headers have
MAX_PAUSE_S = 60.0  # between segments: a gateway that was off for a night is not waited for
MAX_HASH = 2**53


@dataclass(slots=True)
class _Segment:
    """Requests that one incarnation of a gateway recorded; their times count from ``start_s``."""

    start_s: float
    requests: list[TraceRequest] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        return self.start_s + max(request.at_s for request in self.requests)


def read_records(rows: Iterable[Row]) -> list[TraceRequest]:
    """Raise `TraceError`. Requests of several segments keep their distances in time, but for long pauses."""
    segments: dict[object, _Segment] = {}
    blocks: dict[tuple[object, int], int] = {}  # numbered through all segments
    incarnation: object = None
    for row in rows:
        if HEADER_MARK in row.values:
            incarnation = _incarnation(row)
            if None in segments:
                raise row.fault(HEADER_MARK, "the requests above it do not say when they began; begin with a header")
            segments.setdefault(incarnation, _Segment(row.moment("started_at")))
        else:
            request = _request(row)
            names = [blocks.setdefault((incarnation, name), len(blocks)) for name in row.hashes("hash_ids", MAX_HASH)]
            segment = segments.setdefault(incarnation, _Segment(0.0))
            segment.requests.append(replace(request, blocks=tuple(names)))
    return _joined([segment for segment in segments.values() if segment.requests])


def _incarnation(row: Row) -> object:
    """What tells one gateway's one incarnation: after a failure of the disk its header is written again."""
    version = row.integer(HEADER_MARK)
    if version != RECORDING_FORMAT:
        raise row.fault(HEADER_MARK, f"format {version} is unknown; this program reads format {RECORDING_FORMAT}")
    return row.text("gateway"), row.text("started_at")


def _request(row: Row) -> TraceRequest:
    outcome = row.text("outcome") if row.has("outcome") else Outcome.FINISHED
    num_output = row.integer("output_tokens", 0)
    if outcome == Outcome.CANCELLED:
        num_output = row.integer("partial_tokens", 0) if row.has("partial_tokens") else 0
    return TraceRequest(
        at_s=row.seconds("arrived_s"),
        num_input=row.tokens("input_tokens"),
        num_output=max(1, num_output),
        service=row.text("service") if row.has("service") else None,
        slo_ttft_s=row.seconds("slo_ttft_s") if row.has("slo_ttft_s") else None,
        slo_tpot_s=row.seconds("slo_tpot_s") if row.has("slo_tpot_s") else None,
        priority=row.integer("priority") if row.has("priority") else None,
        was_answered=outcome == Outcome.FINISHED,
        answer=_answer(row, outcome),
    )


def _answer(row: Row, outcome: str) -> RecordedAnswer | None:
    """Read what became of the answer; None: the row does not say."""
    if not row.has("outcome") or outcome not in set(Outcome) or (outcome == Outcome.FINISHED and not row.has("ttft_s")):
        return None
    times = (row.seconds(name) if row.has(name) else None for name in ("ttft_s", "tpot_s", "e2e_s", "queued_s"))
    return RecordedAnswer(Outcome(outcome), *times)


def _joined(segments: list[_Segment]) -> list[TraceRequest]:
    """Segments of several gateways may overlap."""
    requests: list[TraceRequest] = []
    end_s, skipped_s = 0.0, 0.0
    for number, segment in enumerate(sorted(segments, key=lambda segment: segment.start_s)):
        if number and segment.start_s > end_s + MAX_PAUSE_S:
            skipped_s += segment.start_s - end_s - MAX_PAUSE_S
        start_s = segment.start_s - skipped_s
        requests += [replace(request, at_s=start_s + request.at_s) for request in segment.requests]
        end_s = max(end_s, segment.end_s)
    return requests
