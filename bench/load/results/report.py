"""Pages about one run, several beside each other, and sweeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.load.results.block import COUNTS, number, rows, verdict
from bench.load.results.goodput import METRICS, parse_promises
from bench.load.results.measures import METRICS as LATENCIES
from bench.load.results.plots import latencies, load, sweep_picture
from mesh.errors import UserError
from mesh.show.pages import Page, PageCell, PageTable, write_page

if TYPE_CHECKING:
    from bench.load.sweep import Sweep

Runs = Mapping[str, Mapping[str, Any]]

CARDS = (
    ("request_throughput", "requests/s"),
    ("request_goodput", "requests/s within SLO"),
    ("slo_attainment", "met their SLO"),
    ("output_throughput", "output tokens/s"),
    ("median_ttft_ms", "median TTFT, ms"),
    ("p99_ttft_ms", "P99 TTFT, ms"),
    ("median_tpot_ms", "median TPOT, ms"),
    ("p99_tpot_ms", "P99 TPOT, ms"),
    ("failed", "failed"),
)
ABOUT = (
    "base_url",
    "request_rate",
    "max_concurrency",
    "num_prompts",
    "duration",
    "goodput",
    "workers",
    "date",
    "label",
)
COLUMNS = ("mean", "median", "std", "p90", "p95", "p99")


def names_of(files: Sequence[Path]) -> list[str]:
    """Short, and different from each other: what their paths do not have in common."""
    if len(set(files)) < len(files):
        raise UserError("the same file twice; give each one once")
    parts = [file.resolve().with_suffix("").parts for file in files]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            break
    ends = {name.rpartition("/")[2] for name in names}
    shorter = [name.rpartition("/")[0] for name in names]
    return shorter if len(ends) == 1 and all(shorter) and len(set(shorter)) == len(names) else names


def report_page(runs: Runs) -> Page:
    """One run, or several beside each other."""
    first = next(iter(runs.values()))
    is_alone = len(runs) == 1
    model = first.get("model_id", "a model")
    limits = _limits(runs)
    notes = [
        (note if is_alone else f"{name}: {note}") for name, run in runs.items() for note in run.get("warnings", [])
    ]
    return Page(
        f"{model}: load test" if is_alone else f"{model}: {len(runs)} runs beside each other",
        _about(first) if is_alone else f"ratios to {next(iter(runs))}",
        (latencies(runs, limits), load(runs, limits)),
        facts=_facts(first) if is_alone else (),
        tables=[_latencies(first), *_services(first), _counts(first)] if is_alone else [_beside(runs)],
        notes=notes,
    )


def sweep_page(sweeps: "Mapping[str, Sweep]", found: Mapping[str, str]) -> Page:
    """``found``: what is to be said of each system."""
    heads = ["system", "requests/s", "met their SLO", "at least", "at most", "of"]
    rates = [
        [
            name,
            number(point["rate"]),
            *(f"{point[key]:.1%}" for key in ("attainment", "low", "high")),
            str(point["requests"]),
        ]
        for name, sweep in sweeps.items()
        for point in sweep.json()["points"]
    ]
    return Page(
        "The highest rate at which requests meet their SLO",
        "",
        (sweep_picture(sweeps),),
        tables=[
            PageTable("Found", ["system", ""], list(found.items())),
            PageTable("Rates that were tried", heads, rates),
        ],
    )


def write(path: Path, page: Page) -> None:
    """Raise `UserError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(path, page)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _about(run: Mapping[str, Any]) -> str:
    known = ((name, run.get(name)) for name in ABOUT)
    return ", ".join(f"{name.replace('_', ' ')} {_words(value)}" for name, value in known if value not in {None, ""})


def _words(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    known = [(key, title, run[key]) for key, title in CARDS if run.get(key) is not None]
    return [(f"{value:.1%}" if key == "slo_attainment" else number(float(value)), title) for key, title, value in known]


def _limits(runs: Runs) -> dict[str, float]:
    """What all runs promise, in ms."""
    words = {str(run.get("goodput") or "") for run in runs.values()}
    if len(words) != 1:
        return {}
    common = parse_promises(words.pop().split()).common
    limits = {metric: getattr(common, key) for metric, key in METRICS.items()}
    return {metric: 1e3 * limit for metric, limit in limits.items() if limit is not None}


def _latencies(run: Mapping[str, Any]) -> PageTable:
    lines = []
    for metric in LATENCIES:
        values = [run.get(f"{column}_{metric.key}_ms") for column in COLUMNS]
        if any(value is not None for value in values):
            lines.append([metric.title, *map(number, values)])
    return PageTable("Latencies, ms", ["", *COLUMNS], lines)


def _services(run: Mapping[str, Any]) -> list[PageTable]:
    keys = (
        "completed",
        "failed",
        "request_throughput",
        "slo_attainment",
        "median_ttft_ms",
        "p99_ttft_ms",
        "p99_tpot_ms",
    )
    services = run.get("services", {})
    lines = [[name, *(number(figures.get(key)) for key in keys)] for name, figures in services.items()]
    return [PageTable("Services", ["", *keys], lines)] if lines else []


def _counts(run: Mapping[str, Any]) -> PageTable:
    lines = [[title.rstrip(":"), _words(run[key])] for key, title in COUNTS if run.get(key) is not None]
    lines += [[f"errors: {kind}", str(count)] for kind, count in run.get("errors_by_kind", {}).items()]
    return PageTable("Counts", ["", ""], lines)


def _beside(runs: Runs) -> PageTable:
    names = list(runs)
    heads = ["", names[0], *(head for name in names[1:] for head in (name, "ratio"))]
    lines: list[list[str | PageCell]] = []
    for key, values, ratios in rows(list(runs.values())):
        line: list[str | PageCell] = [key, number(values[0])]
        for value, ratio in zip(values[1:], ratios, strict=True):
            words = "-" if ratio is None else f"{ratio:.3f}x"
            line += [number(value), PageCell(words, verdict(key, ratio))]
        lines.append(line)
    return PageTable("Figures", heads, lines)
