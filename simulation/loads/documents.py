"""Traces that are one JSON document: results of load generators with each request, and ShareGPT's conversations."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from router.history.records import Outcome
from simulation.loads.formats import TraceFormat, share_gpt, turns_of
from simulation.loads.rows import Row, TraceError
from simulation.loads.trace_request import RecordedAnswer, TraceRequest

MOST_BYTES: Final = 1 << 31
MARKS: Final = frozenset({"input_lens", "benchmarks", "request_throughput", "mean_ttft_ms"})
KNOWN: Final = "results of vllm bench serve with --save-detailed or of guidellm, or ShareGPT's conversations"


def is_document(first: str) -> bool:
    """Say whether a file that begins with this line is one document, not a row a line."""
    text = first.strip()
    if text.startswith("[") or text == "{":
        return True
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(found, dict) and not MARKS.isdisjoint(found)


def read_document(path: Path, file: TextIO) -> tuple[TraceFormat, list[TraceRequest], int]:
    """Return also how many requests are in it, those that are left out among them. Raise `TraceError`."""
    try:
        document = json.loads(file.read(MOST_BYTES))
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    if isinstance(document, dict) and "input_lens" in document:
        requests = _vllm(path, document)
        form = _form("vllm bench serve", has_times=bool(document.get("start_times")))
        return form, requests, len(document["input_lens"])
    if isinstance(document, dict) and isinstance(document.get("benchmarks"), list):
        requests = _guidellm(path, document["benchmarks"])
        return _form("guidellm", has_times=True), requests, len(requests)
    if isinstance(document, list) and any(isinstance(one, dict) and turns_of(one) for one in document):
        requests = share_gpt(one for one in document if isinstance(one, dict))
        return _form("ShareGPT", has_times=False), requests, len(requests)
    what = ", ".join(list(document)[:6]) if isinstance(document, dict) else "a list of something else"
    hint = (
        "; with --save-detailed it would have each request"
        if "request_throughput" in document or "mean_ttft_ms" in document
        else ""
    )
    raise TraceError(f"{path}:1: not a known trace: it has {what}{hint}; want {KNOWN}")


def _form(name: str, has_times: bool) -> TraceFormat:
    return TraceFormat(name, "", (), lambda rows: [], has_times=has_times)


def _vllm(path: Path, document: Mapping[str, Any]) -> list[TraceRequest]:
    """Those that failed have answers of no token, and are left out."""
    columns = {name: document.get(name) or [] for name in ("input_lens", "output_lens", "start_times", "ttfts", "itls")}
    requests = []
    for index, num_input in enumerate(columns["input_lens"]):
        values = {name: column[index] for name, column in columns.items() if index < len(column)}
        row = Row(f"{path}: request {index}", values)
        if row.integer("output_lens", 0) == 0 or num_input == 0:
            continue
        at_s = row.seconds("start_times") if row.has("start_times") else 0.0
        requests.append(TraceRequest(at_s, row.tokens("input_lens"), row.tokens("output_lens"), answer=_seen(row)))
    return requests


def _seen(row: Row) -> RecordedAnswer | None:
    if not row.has("ttfts"):
        return None
    ttft_s, gaps = row.seconds("ttfts"), row.values.get("itls") or [0.0]
    num_later = max(1, row.integer("output_lens") - 1)
    return RecordedAnswer(Outcome.FINISHED, ttft_s, sum(gaps) / num_later, ttft_s + sum(gaps), None)


def _guidellm(path: Path, benchmarks: Sequence[Any]) -> list[TraceRequest]:
    """Requests of all its benchmarks that succeeded, one benchmark after the other."""
    requests: list[TraceRequest] = []
    for number, benchmark in enumerate(benchmarks):
        found = (benchmark.get("requests") or {}).get("successful") if isinstance(benchmark, dict) else None
        for one in found or ():
            row = Row(f"{path}: benchmark {number}", one)
            at_s = row.seconds("request_start_time") if row.has("request_start_time") else 0.0
            requests.append(TraceRequest(at_s, row.tokens("prompt_tokens"), row.tokens("output_tokens")))
    return requests
