"""Traces of requests: when each arrived and how long its prompt and answer were.

`simulation.loads.formats` has those with a row a request: CSV and JSON lines, told apart by their first line.
`simulation.loads.documents` has those that are one JSON document. Any may be gzipped.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import TextIO

from simulation.loads.documents import is_document, read_document
from simulation.loads.formats import CSV_FORMATS, JSON_FORMATS, TraceFormat, choose_format
from simulation.loads.recordings import HEADER_MARK
from simulation.loads.rows import Row, TraceError, csv_rows, cut_rows, json_rows, open_text, parse_object
from simulation.loads.trace_request import LONGEST_S, TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths


def load_trace(path: Path, random: Random) -> list[TraceRequest]:
    """Requests in order of arrival, from 0 s on. ``random`` spreads arrivals inside the ticks of a coarse clock.
    Standard error tells how many are left out.

    Raises `TraceError`, also for a file without times.
    """
    form, requests = _load(path)
    if not form.has_times:
        raise TraceError(
            f"{path}:1: no column of times; `mesh simulate` and `mesh bench` take it as --lengths with a --rate"
        )
    requests.sort(key=lambda request: request.at_s)
    first = requests[0].at_s
    requests = [replace(request, at_s=request.at_s - first) for request in requests]
    if requests[-1].at_s > LONGEST_S:
        raise TraceError(
            f"{path}: from its first request to its last are {requests[-1].at_s / LONGEST_S:.3g} years, and one is the "
            "most; write all its times in one unit"
        )
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


def _load(path: Path) -> tuple[TraceFormat, list[TraceRequest]]:
    try:
        with open_text(path) as file:
            first = file.readline()
            if not first.strip():
                raise TraceError(f"{path}:1: empty; a trace begins with its columns or its first request")
            file.seek(0)
            if is_document(first):
                form, requests, num_rows = read_document(path, file)
            else:
                is_json = first.lstrip().startswith("{")
                form = _json_format(path, first) if is_json else _csv_format(path, first)
                rows = list(_rows(form, path, file, is_json))
                requests, num_rows = form.read(rows), len(rows)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: what it holds is not as its format has it: {str(error)[:200]}") from None
    if not requests:
        raise TraceError(f"{path}:1: no request follows; a trace needs one at least")
    if form.left_out and (num_left_out := num_rows - len(requests)):
        sys.stderr.write(f"{path}: {num_left_out} of {num_rows} requests left out: each {form.left_out}\n")
    return form, requests


def _rows(form: TraceFormat, path: Path, file: TextIO, is_json: bool) -> Iterable[Row]:
    if form.may_be_cut:
        return cut_rows(path, file, HEADER_MARK)
    return json_rows(path, file) if is_json else csv_rows(path, file)


def _csv_format(path: Path, first: str) -> TraceFormat:
    columns = [column.strip() for column in next(csv.reader([first]), [])]
    return choose_format(f"{path}:1", columns, CSV_FORMATS)


def _json_format(path: Path, first: str) -> TraceFormat:
    return choose_format(f"{path}:1", list(parse_object(f"{path}:1", first)), JSON_FORMATS)
