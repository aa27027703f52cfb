"""SCLS's figures: what each scheduler makes of a load, of a slice length, of more workers. Needs matplotlib."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from bench.papers.scls.figure import Line

COLORS = {"SLS": "0.55", "SCLS": "C3", "ILS, cautious": "C0", "ILS": "C2"}
PANELS = (
    ("throughput", "throughput, requests/s"),
    ("mean_s", "mean response time, s"),
    ("p95_s", "P95 response time, s"),
    ("spread_s", "spread of completion times, s"),
)
LOADS = {"rates": ("rate", "requests a second"), "lengths": ("slice_tokens", "tokens of a slice")}


def plot_slices(folder: Path, lines: "Sequence[Line]") -> Iterator[Path]:
    for part, (field, label) in LOADS.items():
        if of_part := [line for line in lines if line.part == part]:
            yield _against(folder / f"slices_{part}.png", of_part, field, label)
    if of_part := [line for line in lines if line.part == "ablation"]:
        yield _bars(folder / "slices_ablation.png", of_part)
    if of_part := [line for line in lines if line.part == "workers"]:
        yield _scaling(folder / "slices_workers.png", of_part)


def _against(path: Path, lines: "Sequence[Line]", field: str, label: str) -> Path:
    kinds = list(dict.fromkeys(line.kind for line in lines))
    figure = Figure(figsize=(13, 3 * len(kinds)), layout="constrained")
    rows = figure.subplots(len(kinds), len(PANELS), squeeze=False)
    for row, kind in zip(rows, kinds, strict=True):
        for axes, (value, title) in zip(row, PANELS, strict=True):
            for name in dict.fromkeys(line.contender for line in lines if line.kind == kind):
                own = [line for line in lines if line.kind == kind and line.contender == name]
                places = [getattr(line, field) for line in own]
                values = [getattr(line.result, value) for line in own]
                width = 5 if name == "ILS, cautious" else 1.6  # where it is never cautious ILS lies on it
                axes.plot(places, values, marker="o", markersize=4, color=COLORS[name], label=name, linewidth=width)
            if field == "slice_tokens":
                axes.set_xscale("log", base=2)
                axes.set_xticks([line.slice_tokens for line in own], [str(line.slice_tokens) for line in own])
            axes.set(title=f"{kind}: {title}", xlabel=label)
            _tidy(axes)
        row[0].legend(frameon=False, fontsize="small")
    return _save(figure, path)


def _bars(path: Path, lines: "Sequence[Line]") -> Path:
    kinds = list(dict.fromkeys(line.kind for line in lines))
    figure = Figure(figsize=(13, 2.8 * len(kinds)), layout="constrained")
    rows = figure.subplots(len(kinds), len(PANELS), squeeze=False)
    for row, kind in zip(rows, kinds, strict=True):
        own = [line for line in lines if line.kind == kind]
        for axes, (value, title) in zip(row, PANELS, strict=True):
            names = [line.contender for line in own]
            colors = [COLORS.get(name, "C1") for name in names]
            axes.bar(names, [getattr(line.result, value) for line in own], color=colors)
            axes.set_title(f"{kind}: {title}")
            _tidy(axes)
    return _save(figure, path)


def _scaling(path: Path, lines: "Sequence[Line]") -> Path:
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for kind in dict.fromkeys(line.kind for line in lines):
        own = [line for line in lines if line.kind == kind]
        workers = [line.num_workers for line in own]
        (drawn,) = axes.plot(workers, [line.result.throughput for line in own], marker="o", label=f"{kind}")
        first = own[0].result.throughput / workers[0]
        axes.plot(workers, [first * count for count in workers], ":", color=drawn.get_color(), linewidth=1)
    axes.set(title="SCLS; dotted: in proportion", xlabel="workers", ylabel="throughput, requests/s")
    axes.legend(frameon=False)
    _tidy(axes)
    return _save(figure, path)


def _tidy(axes: Axes) -> None:
    axes.set_ylim(0, None)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.title.set_fontsize("medium")


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=130)
    return path
