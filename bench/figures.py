"""Plots of docs/results, drawn from the recorded figures in docs/results/data. Needs matplotlib.

There is one JSON file a plot. It has ``panels``, which are drawn side by side. A panel of ``kind`` "bars" has a bar for
each series at each name in ``x``. One of ``kind`` "lines" has a line for each series over the numbers in ``x``. ``log``
spreads them by their logarithms. ``goal`` is a guide at one value.
"""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.harness.arguments import script_parser
from bench.harness.jobs import run_jobs
from mesh.jobs.runner import JobPlace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
DATA, IMAGES = ROOT / "docs/results/data", ROOT / "docs/images/results"
COLORS = ("#3f6fd8", "#e0782f", "#2f9e6e", "#b04fc0", "#8a8f99", "#c9a227", "#2aa5b5")  # readable on both papers
INK, GRID, PAPER = "#1f2430", "#d5d9e2", "#fdfdfe"
DARK = {INK: "#e4e7ee", GRID: "#3b4252", PAPER: "#1b1f29"}
WIDTH, LINES_HEIGHT, BAR_HEIGHT = 8.6, 3.3, 0.22  # inches
# Words stay words, and the same picture gives the same bytes.
STYLE: Final[dict[Any, Any]] = {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "meshserve"}

Panel = Mapping[str, Any]


def main() -> None:
    """``python -m bench.figures [--out FOLDER] [--jobs N | --on ray[:ADDRESS]]``."""
    options = script_parser("bench.figures", __doc__, jobs=True, out=str(IMAGES)).parse_args()
    for path in draw_all(options.out, options.jobs):
        print(path)


def draw_all(out: Path, place: JobPlace) -> Iterator[Path]:
    """Write a plot for each data file and name it."""
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted(DATA.glob("*.json"))
    for source, drawn in zip(sources, run_jobs(draw_file, sources, place, "plots"), strict=True):
        path = out / f"{source.stem}.svg"
        path.write_text(drawn)
        yield path


def draw_file(source: Path) -> str:
    """The plot of a data file."""
    return draw(json.loads(source.read_text())["panels"])


def draw(panels: list[Panel]) -> str:
    """The panels side by side, as SVG whose colours follow the reader's light or dark setting."""
    return _with_both_papers(svg_of(figure_of(panels)))


def figure_of(panels: list[Panel]) -> "Figure":
    """The panels side by side, with one legend below."""
    labels = list(dict.fromkeys(label for panel in panels for label in panel["series"]))
    colors = {label: COLORS[index % len(COLORS)] for index, label in enumerate(labels)}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, max(map(_height, panels))), layout="constrained")
    figure.set_facecolor(PAPER)
    before: Panel | None = None
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        {"bars": _draw_bars, "lines": _draw_lines}[panel["kind"]](axes, panel, colors)
        _finish(axes, panel)
        if before is not None and {before["kind"], panel["kind"]} == {"bars"} and before["x"] == panel["x"]:
            axes.set_yticklabels([])  # they are left of the panel before
        before = panel
    _explain(figure, {label for panel in panels if len(panel["series"]) > 1 for label in panel["series"]})
    return figure


def svg_of(figure: "Figure") -> str:
    """A document. matplotlib is imported when the first is drawn."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _explain(figure: "Figure", labels: set[str]) -> None:
    """One legend for all panels, with these labels."""
    shown = {
        str(label): handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        if label in labels
    }
    if shown:
        place: dict[str, Any] = {"ncols": len(shown), "frameon": False, "labelcolor": INK, "fontsize": 8}
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", **place)


def _height(panel: Panel) -> float:
    if panel["kind"] == "lines":
        return LINES_HEIGHT
    return 1.2 + len(panel["x"]) * (len(panel["series"]) + 0.7) * BAR_HEIGHT


def _draw_bars(axes: "Axes", panel: Panel, colors: Mapping[str, str]) -> None:
    names, series = panel["x"], panel["series"]
    thickness = 0.8 / len(series)
    for index, (label, values) in enumerate(series.items()):
        places = [place + (index - (len(series) - 1) / 2) * thickness for place in range(len(names))]
        bars = axes.barh(places, values, 0.9 * thickness, color=colors[label], label=label)
        axes.bar_label(bars, [f"{value:g}" for value in values], padding=3, fontsize=8, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    if "goal" in panel:
        axes.axvline(panel["goal"], color=INK, linestyle="--", linewidth=1)


def _draw_lines(axes: "Axes", panel: Panel, colors: Mapping[str, str]) -> None:
    for label, values in panel["series"].items():
        axes.plot(panel["x"], values, color=colors[label], marker="o", markersize=4, linewidth=1.7, label=label)
    if "goal" in panel:
        axes.axhline(panel["goal"], color=INK, linestyle="--", linewidth=1)
    axes.set_ylim(0, None)
    if panel.get("log"):
        axes.set_xscale("log")
    axes.set_xticks(panel["x"], [f"{x:g}" for x in panel["x"]])
    axes.minorticks_off()


def _finish(axes: "Axes", panel: Panel) -> None:
    axes.set_title(panel["title"], color=INK, fontsize=9.5)
    axes.set_xlabel(panel.get("xlabel", ""), color=INK)
    axes.set_facecolor(PAPER)
    axes.tick_params(which="both", colors=INK, length=0)
    axes.grid(color=GRID, linewidth=0.7, axis="x" if panel["kind"] == "bars" else "both")
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def _with_both_papers(svg: str) -> str:
    """Name the colours of ink, grid and paper, so that a style can change them."""
    light = "".join(f"--c{color[1:]}:{color};" for color in DARK)
    dark = "".join(f"--c{color[1:]}:{other};" for color, other in DARK.items())
    for color in DARK:
        svg = svg.replace(color, f"var(--c{color[1:]})")
    style = f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    head, end, rest = svg.partition("<defs>")
    return "\n".join(line.rstrip() for line in (head + style + end + rest).splitlines()) + "\n"


if __name__ == "__main__":
    main()
