"""A page about one run, or several beside each other: one file that needs nothing else."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bench.load.results.block import COUNTS, number, rows, verdict
from bench.load.results.goodput import METRICS, parse_promises
from bench.load.results.measures import METRICS as LATENCIES
from mesh.errors import UserError
from simulation.command.outputs import has_matplotlib

Runs = Mapping[str, Mapping[str, Any]]

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2530; background: #f4f6f8; margin: 0; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 24px 48px; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 30px 0 10px; }
.sub { color: #5c6b7a; margin: 0 0 18px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.card, .plot, .table { background: #fff; border: 1px solid #dfe5ea; border-radius: 8px; }
.card { padding: 12px 14px; } .card b { display: block; font-size: 22px; font-weight: 600; }
.card span { color: #5c6b7a; font-size: 13px; }
.plot { padding: 10px; margin-bottom: 14px; } .plot svg { width: 100%; height: auto; display: block; }
.plot.narrow { max-width: 760px; margin-top: 16px; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px; text-align: right; border-bottom: 1px solid #edf0f3; white-space: nowrap; }
th { color: #5c6b7a; font-weight: 500; } th:first-child, td:first-child { text-align: left; }
tr:last-child td { border-bottom: 0; }
.better { color: #1a7f45; font-weight: 600; } .worse { color: #b3261e; font-weight: 600; }
.note { background: #fff7e0; border: 1px solid #ecd9a0; border-radius: 8px; padding: 8px 12px; margin: 8px 0; }
"""
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


def write_report(path: Path, runs: Runs) -> None:
    """Raise `UserError`."""
    _write(path, page(runs))


def page(runs: Runs) -> str:
    first = next(iter(runs.values()))
    is_alone = len(runs) == 1
    title = f"{first.get('model_id', 'a model')}: " + (
        "load test" if is_alone else f"{len(runs)} runs beside each other"
    )
    notes = [
        f"{name}: {note}" if not is_alone else note for name, run in runs.items() for note in run.get("warnings", [])
    ]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(_about(first)) if is_alone else "ratios to " + escape(next(iter(runs)))}</p>',
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        *((_cards(first),) if is_alone else ()),
        *_plots(runs),
        *((_latencies(first), _services(first), _counts(first)) if is_alone else (_beside(runs),)),
    ]
    return _document(title, body)


def write_sweep(
    path: Path, found: Mapping[str, str], lines: Mapping[str, Sequence[tuple[float, float, float, float]]], goal: float
) -> None:
    """``found``: what is to be said of each system. ``lines``: see `attainment_against_rate`. Raise `UserError`."""
    title = "The highest rate at which requests meet their SLO"
    body = [f"<h1>{title}</h1>"]
    if has_matplotlib() and lines:
        from bench.load.results.plots import attainment_against_rate

        body.append(f'<div class="plot narrow">{attainment_against_rate(lines, goal)}</div>')
    heads = ["system", "requests/s", "met their SLO", "at least", "at most"]
    rates = [
        [name, number(rate), *(f"{value:.1%}" for value in met)] for name, line in lines.items() for rate, *met in line
    ]
    body += [_table("Found", ["system", ""], list(found.items())), _table("Rates that were tried", heads, rates)]
    _write(path, _document(title, body))


def _document(title: str, body: Sequence[str]) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><main>\n{''.join(body)}\n</main></body></html>\n"
    )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _about(run: Mapping[str, Any]) -> str:
    known = ((name, run.get(name)) for name in ABOUT)
    return ", ".join(f"{name.replace('_', ' ')} {_words(value)}" for name, value in known if value not in {None, ""})


def _words(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _cards(run: Mapping[str, Any]) -> str:
    cards = []
    for key, title in CARDS:
        value = run.get(key)
        if value is not None:
            words = f"{value:.1%}" if key == "slo_attainment" else number(float(value))
            cards.append(f'<div class="card"><b>{words}</b><span>{escape(title)}</span></div>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _plots(runs: Runs) -> list[str]:
    if not has_matplotlib():
        return ['<p class="note">no plots: matplotlib is not installed; pip install "meshserve[bench]" brings it</p>']
    from bench.load.results.plots import distributions, over_time

    drawn = (
        ("Latencies: share of requests that took at most so long", distributions(runs, _limits(runs))),
        ("Over time", over_time(runs)),
    )
    return [f'<h2>{title}</h2><div class="plot">{svg}</div>' for title, svg in drawn if svg]


def _limits(runs: Runs) -> dict[str, float]:
    """What all runs promise, in ms."""
    words = {str(run.get("goodput") or "") for run in runs.values()}
    if len(words) != 1:
        return {}
    common = parse_promises(words.pop().split()).common
    limits = {metric: getattr(common, key) for metric, key in METRICS.items()}
    return {metric: 1e3 * limit for metric, limit in limits.items() if limit is not None}


def _latencies(run: Mapping[str, Any]) -> str:
    lines = []
    for metric in LATENCIES:
        values = [run.get(f"{column}_{metric.key}_ms") for column in COLUMNS]
        if any(value is not None for value in values):
            lines.append([metric.title, *map(number, values)])
    return _table("Latencies, ms", ["", *COLUMNS], lines)


def _services(run: Mapping[str, Any]) -> str:
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
    return _table("Services", ["", *keys], lines) if lines else ""


def _counts(run: Mapping[str, Any]) -> str:
    lines = [[title.rstrip(":"), _words(run[key])] for key, title in COUNTS if run.get(key) is not None]
    lines += [[f"errors: {kind}", str(count)] for kind, count in run.get("errors_by_kind", {}).items()]
    return _table("Counts", ["", ""], lines)


def _beside(runs: Runs) -> str:
    names = list(runs)
    heads = ["", names[0], *(head for name in names[1:] for head in (name, "ratio"))]
    body = []
    for key, values, ratios in rows(list(runs.values())):
        cells = [f"<td>{key}</td><td>{number(values[0])}</td>"]
        for value, ratio in zip(values[1:], ratios, strict=True):
            words = "-" if ratio is None else f"{ratio:.3f}x"
            cells.append(f'<td>{number(value)}</td><td class="{verdict(key, ratio)}">{words}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return _framed("Figures", heads, body)


def _table(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    body = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines]
    return _framed(title, heads, body)


def _framed(title: str, heads: Sequence[str], body: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    return f'<h2>{escape(title)}</h2><div class="table"><table><tr>{head}</tr>{"".join(body)}</table></div>'
