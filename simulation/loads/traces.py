"""Traces of requests: when each arrived and how long its prompt and answer were.

Formats, told apart by their first line: Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake's JSON lines
(timestamp in ms, input_length, output_length, hash_ids), arrivals with lengths (CSV with arrival_s, input_tokens,
output_tokens), lengths alone (such a CSV without times, or one with prompt_pieces, solution_pieces), the records
that a simulation wrote (JSON lines or CSV with arrived_s, input_tokens, output_tokens), and the recordings of gateways
(such JSON lines after a header). Any may be gzipped.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import TextIO

from simulation.loads.recordings import HEADER_MARK, read_records
from simulation.loads.rows import (
    Row,
    TraceError,
    csv_rows,
    cut_rows,
    json_rows,
    open_text,
    parse_object,
    with_numbers,
)
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths


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


def _each(read: Callable[[Row], TraceRequest]) -> Callable[[Iterable[Row]], list[TraceRequest]]:
    return lambda rows: [read(row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Format:
    """``mark`` is the column that no other format of its kind has."""

    name: str
    mark: str
    columns: tuple[str, ...]
    read: Callable[[Iterable[Row]], list[TraceRequest]]
    has_times: bool = True
    is_quantised: bool = False
    may_be_cut: bool = False  # its writer may have been stopped inside a line


RECORDS, RECORD_COLUMNS = "a file of records", ("arrived_s", "input_tokens", "output_tokens")
CSV_FORMATS = (
    _Format("Azure", "TIMESTAMP", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _each(_azure)),
    _Format(RECORDS, "arrived_s", RECORD_COLUMNS, lambda rows: read_records(map(with_numbers, rows))),
    _Format("a file of arrivals", "arrival_s", ("arrival_s", "input_tokens", "output_tokens"), _each(_arrivals)),
    _Format("a file of lengths", "input_tokens", ("input_tokens", "output_tokens"), _each(_lengths), has_times=False),
    _Format("a file of pieces", "prompt_pieces", ("prompt_pieces", "solution_pieces"), _each(_pieces), has_times=False),
)
JSON_FORMATS = (
    _Format(
        "Mooncake", "timestamp", ("timestamp", "input_length", "output_length"), _each(_mooncake), is_quantised=True
    ),
    _Format(RECORDS, "arrived_s", RECORD_COLUMNS, read_records),
    _Format("a recording", HEADER_MARK, (HEADER_MARK, "started_at"), read_records, may_be_cut=True),
)


def load_trace(path: Path, random: Random) -> list[TraceRequest]:
    """Requests in order of arrival, from 0 s on. ``random`` spreads arrivals inside the ticks of a coarse clock.

    Raises `TraceError`, also for a file without times.
    """
    form, requests = _load(path)
    if not form.has_times:
        raise TraceError(f"{path}:1: no column of times; give the file as --lengths, with a --rate")
    requests.sort(key=lambda request: request.at_s)
    first = requests[0].at_s
    requests = [replace(request, at_s=request.at_s - first) for request in requests]
    return _spread(requests, random) if form.is_quantised else requests


def load_lengths(path: Path) -> list[TraceRequest]:
    """Requests of any format, their times unused, or `described_lengths` by name. Raises `TraceError`."""
    name = str(path)
    return described_lengths(name) if name.startswith(PREFIX) else _load(path)[1]


def at_rate(requests: Sequence[TraceRequest], rate: float) -> list[TraceRequest]:
    """The same pattern of arrivals, faster or slower, so that ``rate`` requests a second arrive on average."""
    return scaled(requests, rate / mean_rate(requests))


def scaled(requests: Sequence[TraceRequest], load: float) -> list[TraceRequest]:
    """Scale a trace: ``load`` times as many requests a second."""
    return [replace(request, at_s=request.at_s / load) for request in requests]


def structured(requests: Sequence[TraceRequest], share: float, random: Random) -> list[TraceRequest]:
    """About that share of them follow a grammar; which ones, chance says."""
    return [replace(request, is_structured=random.random() < share) for request in requests]


def mean_rate(requests: Sequence[TraceRequest]) -> float:
    """Requests a second; of one request, or of many at once, 1."""
    span_s = requests[-1].at_s
    return (len(requests) - 1) / span_s if span_s > 0 else 1.0


def _spread(requests: Sequence[TraceRequest], random: Random) -> list[TraceRequest]:
    """Arrivals of one tick are drawn uniformly from the time until the next tick, in their order."""
    ticks = [list(group) for _, group in groupby(requests, lambda request: request.at_s)]
    starts = [tick[0].at_s for tick in ticks]
    widths = [later - earlier for earlier, later in pairwise(starts)]
    widths.append(min(widths, default=0.0))
    return [
        replace(request, at_s=start + offset)
        for tick, start, width in zip(ticks, starts, widths, strict=True)
        for request, offset in zip(tick, sorted(random.uniform(0, width) for _ in tick), strict=True)
    ]


# --- files ------------------------------------------------------------------------------------------------------------


def _load(path: Path) -> tuple[_Format, list[TraceRequest]]:
    try:
        with open_text(path) as file:
            first = file.readline()
            if not first.strip():
                raise TraceError(f"{path}:1: empty; a trace begins with its columns or its first request")
            file.seek(0)
            is_json = first.lstrip().startswith("{")
            form = _json_format(path, first) if is_json else _csv_format(path, first)
            requests = form.read(_rows(form, path, file, is_json))
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if not requests:
        raise TraceError(f"{path}:1: no request follows; a trace needs one at least")
    return form, requests


def _rows(form: _Format, path: Path, file: TextIO, is_json: bool) -> Iterable[Row]:
    if form.may_be_cut:
        return cut_rows(path, file, HEADER_MARK)
    return json_rows(path, file) if is_json else csv_rows(path, file)


def _csv_format(path: Path, first: str) -> _Format:
    columns = [column.strip() for column in next(csv.reader([first]), [])]
    return _choose(path, columns, CSV_FORMATS)


def _json_format(path: Path, first: str) -> _Format:
    return _choose(path, list(parse_object(f"{path}:1", first)), JSON_FORMATS)


def _choose(path: Path, columns: Sequence[str], formats: Sequence[_Format]) -> _Format:
    marked = [form for form in formats if form.mark in columns]
    alike = [form for form in formats if set(form.columns).intersection(columns)]
    form = min(marked[:1] or alike, key=lambda form: len(_missing(form, columns)), default=None)
    if form is None:
        forms = dict.fromkeys((form.name, form.columns) for form in (*CSV_FORMATS, *JSON_FORMATS))
        known = "; ".join(f"{', '.join(columns)} ({name})" for name, columns in forms)
        raise TraceError(f"{path}:1: not a known trace: want the columns {known}")
    if missing := _missing(form, columns):
        raise TraceError(f"{path}:1: {missing[0]}: missing; {form.name} has {', '.join(form.columns)}")
    return form


def _missing(form: _Format, columns: Sequence[str]) -> list[str]:
    return [column for column in form.columns if column not in columns]
