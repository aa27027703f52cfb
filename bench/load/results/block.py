"""The summary that users of ``vllm bench serve`` know, and comparisons of runs beside each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.load.results.measures import METRICS, PERCENTILES, comparable

WIDTH = 50
TITLE, END = "Serving Benchmark Result", "=" * WIDTH
COUNTS = (
    ("completed", "Successful requests:"),
    ("failed", "Failed requests:"),
    ("cancelled", "Cancelled requests, not counted:"),
    ("skipped", "Warm-up, not counted:"),
    ("max_concurrency", "Maximum request concurrency:"),
    ("request_rate", "Request rate configured (RPS):"),
    ("duration", "Benchmark duration (s):"),
    ("total_input_tokens", "Total input tokens:"),
    ("total_output_tokens", "Total generated tokens:"),
    ("request_throughput", "Request throughput (req/s):"),
    ("request_goodput", "Request goodput (req/s):"),
    ("slo_attainment", "Requests that met their SLO (%):"),
    ("output_throughput", "Output token throughput (tok/s):"),
    ("max_output_tokens_per_s", "Peak output token throughput (tok/s):"),
    ("max_concurrent_requests", "Peak concurrent requests:"),
    ("total_token_throughput", "Total token throughput (tok/s):"),
)
QUIET = {"cancelled", "skipped"}  # not worth a line if there are none
HIGHER_IS_BETTER = {
    "completed",
    "request_throughput",
    "request_goodput",
    "slo_attainment",
    "output_throughput",
    "max_output_tokens_per_s",
    "total_token_throughput",
}


def block(result: Mapping[str, Any]) -> str:
    lines = [f"{f' {TITLE} ':=^{WIDTH}}"]
    for key, title in COUNTS:
        value = result.get(key)
        if value is None or (key in QUIET and not value):
            continue
        lines.append(_line(title, 100 * value if key == "slo_attainment" else value))
    lines += [_line(f"  {kind}:", number) for kind, number in result.get("errors_by_kind", {}).items()]
    for metric in METRICS:
        lines += _of_metric(metric.key, metric.title, result)
    lines += _from_sending(result)
    lines += _bounds(result.get("intervals", {}))
    for name, figures in result.get("services", {}).items():
        lines += _service(name, figures)
    return "\n".join([*lines, END])


def _line(title: str, value: object) -> str:
    words = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{title:<40} {words}"


def _of_metric(key: str, title: str, result: Mapping[str, Any]) -> list[str]:
    if result.get(f"mean_{key}_ms") is None:
        return []
    short = {"normalized_latency": "NL"}.get(key, key.upper())
    names = (("mean", "Mean"), ("median", "Median"), *((f"p{percent}", f"P{percent}") for percent in PERCENTILES[1:]))
    figures = ((words, result.get(f"{name}_{key}_ms")) for name, words in names)
    lines = [_line(f"{words} {short} (ms):", float(value)) for words, value in figures if value is not None]
    return [f"{title:-^{WIDTH}}", *lines]


def _from_sending(result: Mapping[str, Any]) -> list[str]:
    """Where it differs from the time since a request was due."""
    due, sent = result.get("p99_ttft_ms"), result.get("p99_ttft_sent_ms")
    if due is None or sent is None or due - sent < max(1.0, 0.01 * due):
        return []
    keys = (("ttft_sent", "TTFT"), ("e2el_sent", "E2EL"), ("client_queue", "waiting in the client"))
    lines = [
        _line(f"{words} {title} (ms):", float(result[f"{name}_{key}_ms"]))
        for key, title in keys
        for name, words in (("median", "Median"), ("p99", "P99"))
    ]
    return [f"{' Since it was sent, not since it was due ':-^{WIDTH}}", *lines]


def _bounds(intervals: Mapping[str, Sequence[float]]) -> list[str]:
    """Between which bounds figures of a run without end would be."""
    names = {f"mean_{key}_ms": (f"Mean {key.upper()} (ms):", 1) for key in ("ttft", "tpot", "e2el")}
    names["slo_attainment"] = ("Requests that met their SLO (%):", 100)
    lines = [
        _line(title, " to ".join(f"{scale * bound:.2f}" for bound in intervals[key]))
        for key, (title, scale) in names.items()
        if key in intervals
    ]
    return [f"{' 95 % sure ':-^{WIDTH}}", *lines] if lines else []


def _service(name: str, figures: Mapping[str, Any]) -> list[str]:
    lines = [f"{f' {name} ':-^{WIDTH}}"]
    for key, title in COUNTS:
        value = figures.get(key)
        if (
            key in {"completed", "failed", "request_throughput", "request_goodput", "slo_attainment"}
            and value is not None
        ):
            lines.append(_line(title, 100 * value if key == "slo_attainment" else value))
    for key in ("ttft", "tpot", "e2el"):
        values = [figures.get(f"{which}_{key}_ms") for which in ("median", "p99")]
        if None not in values:
            lines.append(_line(f"Median, P99 {key.upper()} (ms):", ", ".join(f"{value:.2f}" for value in values)))
    return lines


# --- beside each other ------------------------------------------------------------------------------------------------

SHOWN = (
    *(key for key, _ in COUNTS if key not in {"max_concurrency", "request_rate", *QUIET}),
    *(f"{name}_{metric.key}_ms" for metric in METRICS for name in ("mean", "median", "p90", "p99")),
)


def rows(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[float | None], list[float | None]]]:
    """A figure, its value in each run, and the ratios of the later runs to the first."""
    found = [comparable(result) for result in results]
    lines = []
    for key in SHOWN:
        values = [figures.get(key) for figures in found]
        if any(value is not None for value in values):
            first = values[0]
            ratios = [None if value is None or not first else value / first for value in values[1:]]
            lines.append((key, values, ratios))
    return lines


def comparison(named: Mapping[str, Mapping[str, Any]]) -> Table:
    """With more than one run, each one's ratio to the first; green where it is better, by 2 % at least."""
    table = Table(title="runs beside each other", title_justify="left")
    table.add_column("")
    names = list(named)
    for index, name in enumerate(names):
        table.add_column(name, justify="right")
        if index:
            table.add_column(f"/ {names[0]}", justify="right")
    for key, values, ratios in rows(list(named.values())):
        cells = [number(values[0])]
        for value, ratio in zip(values[1:], ratios, strict=True):
            cells += [number(value), _colored(key, ratio)]
        table.add_row(key, *cells)
    return table


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return (
        f"{value:.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}" if value < 1 else f"{value:.2f}"
    )


def verdict(key: str, ratio: float | None, margin: float = 0.02) -> str:
    """``better``, ``worse`` or nothing."""
    if ratio is None or abs(ratio - 1) < margin or key in {"duration", "total_input_tokens", "total_output_tokens"}:
        return ""
    return "better" if (ratio > 1) == (key in HIGHER_IS_BETTER) else "worse"


def _colored(key: str, ratio: float | None) -> str:
    if ratio is None:
        return "-"
    color = {"better": "green", "worse": "red"}.get(verdict(key, ratio))
    words = f"{ratio:.3f}x"
    return f"[{color}]{words}[/]" if color else words
