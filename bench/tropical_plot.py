"""SLO attainment against rate, one picture a model and workload. Needs matplotlib."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from bench.tropical_figure import Line

COLORS = {"tropical": "C0", "elastic": "C3", "colocated": "0.35", "chunked": "C2", "disaggregated": "C1"}
DASHES = {"reject_late": "--", "2 multiplexing": ":"}


def plot_attainment(folder: Path, lines: "Sequence[Line]", promise: float) -> Iterator[Path]:
    """Write the pictures and name them."""
    for (model, workload), of_case in groupby(lines, key=lambda line: (line.model, line.workload)):
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        for line in of_case:
            rates = [trial.rate for trial in line.found.trials]
            attained = [100 * trial.attainment for trial in line.found.trials]
            style = next((dash for word, dash in DASHES.items() if word in line.contender), "-")
            label = f"{line.contender} ({line.found.rate:.2f}/s)"
            axes.plot(
                rates, attained, style, marker="o", markersize=3, color=COLORS.get(line.policy, "C4"), label=label
            )
        axes.axhline(100 * promise, color="0.6", linestyle="--", linewidth=1)
        axes.set(title=f"{model}, {workload}", ylim=(0, 103), xlim=(0, None))
        axes.set_xlabel("requests a second")
        axes.set_ylabel("requests that met both SLOs, %")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
        path = folder / f"{model}-{workload}.png".replace(" ", "-")
        figure.savefig(path, dpi=150)
        yield path
