"""Files of other load generators: vllm bench serve, aiperf and guidellm."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final

from router.profiling.published.seen import FormatError, Published, SeenAnswer, SeenMeans, joined, of_answers, of_means

MOST_BYTES: Final = 1 << 30
VLLM_KEYS: Final = frozenset({"request_throughput", "input_lens", "mean_ttft_ms"})
UNFIT: Final = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)  # of other content
KNOWN: Final = (
    "a result of vllm bench serve (JSON), aiperf's profile_export.jsonl, profile_export_aiperf.json or .csv, "
    "guidellm's benchmarks.json, or prometheus:URL"
)


def read_file(path: Path) -> Published:
    """Raise `FormatError`."""
    try:
        return _read(path, _text(path))
    except UNFIT as error:
        raise FormatError(f"--from: {path}: what it holds is not as its format has it: {str(error)[:200]}") from None


def _read(path: Path, text: str) -> Published:
    if not text.strip():
        raise FormatError(f"--from: {path}: empty; it may be {KNOWN}")
    if text.lstrip().startswith("Metric,"):
        return _aiperf_csv(path, text)
    document = _json(path, text)
    if isinstance(document, list):
        if document and all(isinstance(one, Mapping) and not VLLM_KEYS.isdisjoint(one) for one in document):
            return joined([_vllm(path, one) for one in document])  # with --append-result
        return _aiperf_records(path, document)
    if "benchmarks" in document:
        return _guidellm(path, document["benchmarks"])
    if not VLLM_KEYS.isdisjoint(document) and not isinstance(document.get("request_throughput"), dict):
        return _vllm(path, document)
    if "time_to_first_token" in document:
        return _aiperf_json(path, document)
    raise FormatError(
        f"--from: {path}: not known, as it has {', '.join(list(document)[:6]) or 'nothing'}; it may be {KNOWN}"
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise FormatError(f"--from: {path}: no such file; it may be {KNOWN}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"--from: {path}: cannot be read: {error}") from None


def _json(path: Path, text: str) -> Any:
    """A document, or the list of a row a line."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError as error:
            raise FormatError(f"--from: {path}: neither JSON nor JSON lines: {error.msg}; it may be {KNOWN}") from None
    return found if isinstance(found, dict | list) else {}


def _number(path: Path, table: Mapping[str, Any], *keys: str) -> float:
    """The value behind nested keys. Raise `FormatError` if it is no number above or at 0."""
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise FormatError(f"--from: {path}: {'.'.join(keys)}: {value!r} is no number; it should be there")
    return float(value)


# --- vllm bench serve -------------------------------------------------------------------------------------------------


def _vllm(path: Path, result: Mapping[str, Any]) -> Published:
    model, at_a_time = str(result.get("model_id") or ""), result.get("max_concurrency")
    about = f"vllm bench serve, {path.name}"
    if result.get("ttfts") and result.get("itls"):
        return of_answers(about, _vllm_answers(path, result), model, at_a_time if isinstance(at_a_time, int) else None)
    completed = _number(path, result, "completed")
    if not completed:
        raise FormatError(f"--from: {path}: completed: 0: no request was answered, so there is nothing to learn")
    means = SeenMeans(
        _number(path, result, "total_input_tokens") / completed,
        max(1.0, _number(path, result, "total_output_tokens") / completed),
        _number(path, result, "mean_ttft_ms") / 1e3,
        _number(path, result, "mean_tpot_ms") / 1e3,
        _number(path, result, "request_throughput"),
        at_a_time if isinstance(at_a_time, int) else None,
    )
    return of_means(about, [means], model, int(completed))


def _vllm_answers(path: Path, result: Mapping[str, Any]) -> list[SeenAnswer]:
    names = ("input_lens", "output_lens", "ttfts", "itls")
    columns = [result.get(name) for name in names]
    if not all(isinstance(column, list) and len(column) == len(result["ttfts"]) for column in columns):
        raise FormatError(f"--from: {path}: {', '.join(names)} should be lists of one length")
    starts: Sequence[float | None] = result.get("start_times") or [None] * len(result["ttfts"])
    answers = []
    for num_input, num_output, ttft_s, gaps, start_s in zip(*columns, starts, strict=False):  # type: ignore[arg-type]
        if num_output > 0 and 0 < ttft_s < inf:
            step_s = sum(gaps) / (num_output - 1) if num_output > 1 else 0.0
            answers.append(SeenAnswer(num_input, num_output, ttft_s, step_s, start_s))
    return answers


# --- aiperf -----------------------------------------------------------------------------------------------------------


def _aiperf_records(path: Path, records: Sequence[Any]) -> Published:
    answers = []
    for record in records:
        if not isinstance(record, Mapping) or "metrics" not in record:
            raise FormatError(f"--from: {path}: lines without metrics; it may be {KNOWN}")
        if record.get("error") is None and "time_to_first_token" in record["metrics"]:
            answers.append(_aiperf_answer(path, record))
    return of_answers(f"aiperf, {path.name}", answers, "", None)


def _aiperf_answer(path: Path, record: Mapping[str, Any]) -> SeenAnswer:
    def value(name: str) -> float:
        return _number(path, record["metrics"], name, "value")

    num_output = int(value("output_sequence_length"))
    step_s = value("inter_token_latency") / 1e3 if num_output > 1 else 0.0
    start_s = _number(path, record, "metadata", "request_start_ns") / 1e9
    return SeenAnswer(
        int(value("input_sequence_length")), num_output, value("time_to_first_token") / 1e3, step_s, start_s
    )


def _aiperf_json(path: Path, result: Mapping[str, Any]) -> Published:
    config = result.get("input_config") or {}
    at_a_time = (config.get("loadgen") or {}).get("concurrency")
    names = (config.get("endpoint") or {}).get("model_names") or [""]
    means = {name: _number(path, result, name, "avg") for name in _AIPERF}
    num_requests = int(_number(path, result, "request_count", "avg")) if "request_count" in result else 0
    return _aiperf_means(path, means, str(names[0]), at_a_time if isinstance(at_a_time, int) else None, num_requests)


_AIPERF: Final = {
    "input_sequence_length": "Input Sequence Length",
    "output_sequence_length": "Output Sequence Length",
    "time_to_first_token": "Time to First Token",
    "inter_token_latency": "Inter Token Latency",
    "request_throughput": "Request Throughput",
}


def _aiperf_csv(path: Path, text: str) -> Published:
    """Sections one after the other, each with a head: ``avg`` is the first column after the metric's name."""
    rows = {row[0].partition(" (")[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) > 1}
    found: dict[str, Any] = {}
    for name, title in _AIPERF.items():
        try:
            found[name] = float(rows[title].replace(",", ""))
        except (KeyError, ValueError):
            raise FormatError(
                f"--from: {path}: {title}: missing; aiperf's CSV has it where answers are streamed"
            ) from None
    return _aiperf_means(path, found, "", None, 0)


def _aiperf_means(
    path: Path, found: Mapping[str, float], model: str, at_a_time: int | None, num_requests: int
) -> Published:
    means = SeenMeans(
        found["input_sequence_length"],
        max(1.0, found["output_sequence_length"]),
        found["time_to_first_token"] / 1e3,
        found["inter_token_latency"] / 1e3,
        found["request_throughput"],
        at_a_time,
    )
    return of_means(f"aiperf, {path.name}", [means], model, num_requests)


# --- guidellm ---------------------------------------------------------------------------------------------------------


def _guidellm(path: Path, benchmarks: Any) -> Published:
    """The requests of its benchmarks that succeeded. Those of different benchmarks are far apart in time."""
    answers: list[SeenAnswer] = []
    about = f"guidellm, {path.name}"
    for benchmark in benchmarks if isinstance(benchmarks, list) else ():
        found = (benchmark.get("requests") or {}).get("successful") if isinstance(benchmark, Mapping) else None
        streamed = [
            one for one in found or () if isinstance(one, Mapping) and one.get("time_to_first_token_ms") is not None
        ]
        answers += [_guidellm_answer(path, one) for one in streamed]
    if not answers:
        raise FormatError(f"--from: {path}: no successful request is in it; guidellm keeps them in its JSON, streamed")
    return of_answers(about, answers, "", None)


def _guidellm_answer(path: Path, one: Mapping[str, Any]) -> SeenAnswer:
    num_output = int(_number(path, one, "output_tokens"))
    step_s = _number(path, one, "inter_token_latency_ms") / 1e3 if num_output > 1 else 0.0
    ttft_s, start_s = _number(path, one, "time_to_first_token_ms") / 1e3, one.get("request_start_time")
    return SeenAnswer(int(_number(path, one, "prompt_tokens")), num_output, ttft_s, step_s, start_s)
