"""Formats of traces with a row a request, told apart by the columns that they name first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from mesh.suggestions import closest
from router.history.records import Outcome
from simulation.loads.recordings import HEADER_MARK, read_records
from simulation.loads.rows import NoTokensError, Row, TraceError, with_numbers
from simulation.loads.trace_request import RecordedAnswer, TraceRequest

BYTES_PER_TOKEN: Final = 4  # of English text, about


def _azure(row: Row) -> TraceRequest:
    return TraceRequest(row.moment("TIMESTAMP"), row.tokens("ContextTokens"), row.tokens("GeneratedTokens"))


def _mooncake(row: Row) -> TraceRequest:
    at_s = row.seconds("timestamp", 1e-3)
    return TraceRequest(at_s, row.tokens("input_length"), row.tokens("output_length"), row.hashes("hash_ids"))


def _arrivals(row: Row) -> TraceRequest:
    return TraceRequest(row.seconds("arrival_s"), row.tokens("input_tokens"), row.tokens("output_tokens"))


def _lengths(row: Row) -> TraceRequest:
    return TraceRequest(0.0, row.tokens("input_tokens"), row.tokens("output_tokens"))


def _pieces(row: Row) -> TraceRequest:
    return TraceRequest(0.0, row.tokens("prompt_pieces"), row.tokens("solution_pieces"))


def _vidur(row: Row) -> TraceRequest:
    at_s = row.seconds("arrived_at") if row.has("arrived_at") else 0.0
    return TraceRequest(at_s, row.tokens("num_prefill_tokens"), row.tokens("num_decode_tokens"))


def _burst_gpt(row: Row) -> TraceRequest:
    return TraceRequest(row.seconds("Timestamp"), row.tokens("Request tokens"), row.tokens("Response tokens"))


def _serve_gen(row: Row) -> TraceRequest:
    return TraceRequest(row.seconds("timestamp"), row.tokens("input_tokens"), row.tokens("output_tokens"))


def _llm_serving_sim(row: Row) -> TraceRequest:
    return TraceRequest(row.seconds("arrival_time"), row.tokens("input_toks"), row.tokens("output_toks"))


def _batched(row: Row) -> TraceRequest:
    return TraceRequest(0.0, row.tokens("input_length"), row.tokens("output_length"))


def _bench(row: Row) -> TraceRequest:
    """One outcome of mesh bench's requests.jsonl. One that failed asks for what it was to have."""
    is_whole = not row.has("failure")
    sizes = {side: row.tokens(_asked(row, side, is_whole)) for side in ("input", "output")}
    due_s = row.seconds("due_s")
    ttft_s = row.seconds("first_s") - due_s if row.has("first_s") else None
    e2e_s = row.seconds("last_s") - due_s if row.has("last_s") else None
    tpot_s = (
        None if ttft_s is None or e2e_s is None or sizes["output"] < 2 else (e2e_s - ttft_s) / (sizes["output"] - 1)
    )
    promise = row.table("promise") if row.has("promise") else Row(row.place, {})
    return TraceRequest(
        due_s,
        sizes["input"],
        sizes["output"],
        service=row.text("model"),
        slo_ttft_s=promise.seconds("ttft_s") if promise.has("ttft_s") else None,
        slo_tpot_s=promise.seconds("tpot_s") if promise.has("tpot_s") else None,
        was_answered=is_whole,
        answer=RecordedAnswer(Outcome.FINISHED if is_whole else Outcome.FAILED, ttft_s, tpot_s, e2e_s, None),
    )


def _asked(row: Row, side: str, is_whole: bool) -> str:
    """The column of a length: what was asked for, where what came is less."""
    asked = f"asked_{side}_tokens"
    return f"{side}_tokens" if is_whole or not row.has(asked) else asked


def _aiperf(row: Row) -> TraceRequest:
    """One record of aiperf's profile_export.jsonl."""
    metadata, metrics = row.table("metadata"), row.table("metrics")
    times = {name: _milliseconds(metrics, name) for name in ("time_to_first_token", "request_latency")}
    tpot_s = _milliseconds(metrics, "inter_token_latency")
    answer = RecordedAnswer(Outcome.FINISHED, times["time_to_first_token"], tpot_s, times["request_latency"], None)
    return TraceRequest(
        metadata.seconds("request_start_ns", 1e-9),
        metrics.table("input_sequence_length").tokens("value"),
        metrics.table("output_sequence_length").tokens("value"),
        answer=answer,
    )


def _milliseconds(metrics: Row, name: str) -> float | None:
    return metrics.table(name).seconds("value", 1e-3) if metrics.has(name) else None


def turns_of(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the turns of one of ShareGPT's conversations that have a text."""
    turns = conversation.get("conversations") or conversation.get("conversation") or []
    return [turn for turn in turns if isinstance(turn, dict) and isinstance(turn.get("value"), str)]


def share_gpt(conversations: Iterable[Mapping[str, Any]]) -> list[TraceRequest]:
    """Return the first question of each and its answer, as vLLM's own benchmark takes them; four bytes count as a
    token.
    """
    first_two = [turns[:2] for one in conversations if len(turns := turns_of(one)) >= 2]
    lengths = [[max(1, len(turn["value"].encode()) // BYTES_PER_TOKEN) for turn in turns] for turns in first_two]
    return [TraceRequest(0.0, num_input, num_output) for num_input, num_output in lengths]


def _each(read: Callable[[Row], TraceRequest]) -> Callable[[Iterable[Row]], list[TraceRequest]]:
    """Leave out what has no tokens: answers of no token are failures in BurstGPT."""

    def read_all(rows: Iterable[Row]) -> list[TraceRequest]:
        requests = []
        for row in rows:
            with suppress(NoTokensError):
                requests.append(read(row))
        return requests

    return read_all


def _of_one_clock(rows: Iterable[Row], column: str) -> Iterator[Row]:
    """Raise `TraceError` at the first row that has a date where the first one has seconds, or the reverse."""
    first: Row | None = None
    for row in rows:
        first = first or row
        if row.is_date(column) != first.is_date(column):
            raise row.fault(
                column, f"{row.get(column)!r} beside {first.get(column)!r}; use dates or seconds throughout"
            )
        yield row


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """``mark`` is the column that no other format of its kind has. ``left_out``: what is told of rows that became no
    request; empty if rows are not requests.
    """

    name: str
    mark: str
    columns: tuple[str, ...]
    read: Callable[[Iterable[Row]], list[TraceRequest]]
    has_times: bool = True
    is_quantised: bool = False
    may_be_cut: bool = False  # its writer may have been stopped inside a line
    left_out: str = "has no token in its prompt or answer"


OTHER_MARKS: Final = {";": "semicolons", "\t": "tabs"}
RECORDS, RECORD_COLUMNS = "a file of records", ("arrived_s", "input_tokens", "output_tokens")
ARRIVALS = ("input_tokens", "output_tokens")
CSV_FORMATS = (
    TraceFormat("Vidur", "arrived_at", ("arrived_at", "num_prefill_tokens", "num_decode_tokens"), _each(_vidur)),
    TraceFormat(
        "Vidur's lengths",
        "num_prefill_tokens",
        ("num_prefill_tokens", "num_decode_tokens"),
        _each(_vidur),
        has_times=False,
    ),
    TraceFormat("BurstGPT", "Request tokens", ("Timestamp", "Request tokens", "Response tokens"), _each(_burst_gpt)),
    TraceFormat("ServeGen", "timestamp", ("timestamp", *ARRIVALS), _each(_serve_gen)),
    TraceFormat(
        "Azure",
        "TIMESTAMP",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        lambda rows: _each(_azure)(_of_one_clock(rows, "TIMESTAMP")),
    ),
    TraceFormat(RECORDS, "arrived_s", RECORD_COLUMNS, lambda rows: read_records(map(with_numbers, rows)), left_out=""),
    TraceFormat("a file of arrivals", "arrival_s", ("arrival_s", "input_tokens", "output_tokens"), _each(_arrivals)),
    TraceFormat(
        "a file of lengths", "input_tokens", ("input_tokens", "output_tokens"), _each(_lengths), has_times=False
    ),
    TraceFormat(
        "a file of pieces", "prompt_pieces", ("prompt_pieces", "solution_pieces"), _each(_pieces), has_times=False
    ),
)
JSON_FORMATS = (
    TraceFormat(
        "aiperf's records",
        "metrics",
        ("metadata", "metrics"),
        lambda rows: [_aiperf(row) for row in rows if not row.has("error")],
        left_out="failed",
    ),
    TraceFormat("mesh bench's requests", "due_s", ("model", "due_s", *ARRIVALS), _each(_bench)),
    TraceFormat("LLMServingSim", "input_toks", ("arrival_time", "input_toks", "output_toks"), _each(_llm_serving_sim)),
    TraceFormat(
        "Mooncake", "timestamp", ("timestamp", "input_length", "output_length"), _each(_mooncake), is_quantised=True
    ),
    TraceFormat(
        "ServeGen's batches",
        "duration",
        ("input_length", "output_length", "duration"),
        _each(_batched),
        has_times=False,
    ),
    TraceFormat(
        "ShareGPT",
        "conversations",
        ("conversations",),
        lambda rows: share_gpt(row.values for row in rows),
        has_times=False,
        left_out="",
    ),
    TraceFormat(RECORDS, "arrived_s", RECORD_COLUMNS, read_records, left_out=""),
    TraceFormat("a recording", HEADER_MARK, (HEADER_MARK, "started_at"), read_records, may_be_cut=True, left_out=""),
)


def choose_format(place: str, columns: Sequence[str], formats: Sequence[TraceFormat]) -> TraceFormat:
    """Return the format that has these columns. Raise `TraceError` that names the nearest one."""
    marked = [form for form in formats if form.mark in columns]
    if len(columns) == 1 and (other := next((mark for mark in OTHER_MARKS if mark in columns[0]), None)):
        raise TraceError(f"{place}: {OTHER_MARKS[other]} are between its columns; write commas")
    form = min(marked[:1] or _alike(columns, formats), key=lambda form: len(_missing(form, columns)), default=None)
    if form is None:
        raise TraceError(f"{place}: not a known trace: it has {_few(columns)}; {_nearest(columns, formats)}")
    if missing := _missing(form, columns):
        close = closest(missing[0], [column for column in columns if column not in form.columns])
        instead = f" (is it {close!r}?)" if close else ""
        raise TraceError(f"{place}: {missing[0]}: missing{instead}; {form.name} has {', '.join(form.columns)}")
    return form


def _alike(columns: Sequence[str], formats: Sequence[TraceFormat]) -> list[TraceFormat]:
    return [form for form in formats if set(form.columns).intersection(columns)]


def _nearest(columns: Sequence[str], formats: Sequence[TraceFormat]) -> str:
    """The format whose columns resemble these most, or all that there are."""
    if columns[:2] == ["Metric", "avg"]:
        return "aiperf's summary tells of no single request, its profile_export.jsonl does"
    plain = {_plain(column) for column in columns}

    def num_close(form: TraceFormat) -> float:
        return sum(closest(_plain(column), plain) is not None for column in form.columns) / len(form.columns)

    form = max(formats, key=num_close)
    if num_close(form) > 0:
        return f"nearest is {form.name}, which has {', '.join(form.columns)}"
    forms = dict.fromkeys((form.name, form.columns) for form in formats)
    known = "; ".join(f"{', '.join(names)} ({name})" for name, names in forms)
    return f"want the columns {known}"


def _plain(column: str) -> str:
    return column.lower().replace(" ", "_")


def _few(columns: Sequence[str]) -> str:
    return ", ".join(columns[:6])[:200] + (" and more" if len(columns) > 6 else "")


def _missing(form: TraceFormat, columns: Sequence[str]) -> list[str]:
    return [column for column in form.columns if column not in columns]
