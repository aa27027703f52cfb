"""The testbed's figures in pictures. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.plots import legend_beside, log_axis, new_figure, save, tidy
from bench.papers.seallm.testbed.systems import OURS
from bench.papers.seallm.testbed.tables import AXES, Points

COLORS = {
    "ours": "#c1272d",
    "dedicated": "0.45",
    "alpaserve": "#1f6fb4",
    "alpaserve-strict": "#8cbbe0",
    "muxserve": "#e08e1b",
    "-F": "#1f6fb4",
    "-F-strict": "#8cbbe0",
    "-M": "#6a4c93",
    "-P": "0.45",
    "adaptive": "#c1272d",
    "fixed": "#2a9d5c",
    "foreseen": "#e08e1b",
    "-A": "0.45",
}
MARKERS = {"ours": "o", "dedicated": "s", "alpaserve": "^", "alpaserve-strict": "v", "muxserve": "D"}
LABELS = {
    "mean": "mean normalised latency",
    "p99": "P99 normalised latency",
    "attainment": "promises kept, %",
    "ttft_s": "mean TTFT, s",
    "tpot_s": "mean TPOT, ms",
}
SCALES = {"attainment": 100.0, "tpot_s": 1e3}
PANELS = {
    6: ("mean", "p99", "attainment"),
    7: ("ttft_s", "tpot_s"),
    8: ("mean", "attainment"),
    9: ("mean", "attainment"),
    11: ("mean", "attainment"),
    12: ("mean", "attainment"),
    13: ("mean", "attainment"),
}
LOGARITHMIC = ("mean", "p99", "ttft_s", "tpot_s")
TITLES = {
    6: "Latency and attainment under rising load",
    7: "First token, and tokens after it",
    8: "What each part of the design brings",
    9: "Services placed anew as traffic moves",
    11: "Fewer devices for the same load",
    12: "Requests of one service in a row",
    13: "Answers whose length was not foreseen",
}


def plot_figure(folder: Path, figure: int, by_system: Mapping[str, Points]) -> Path:
    """A panel for each measure."""
    panels = PANELS[figure]
    picture = new_figure(3.7 * len(panels) + 1.6, 3.3)
    for axes, measure in zip(picture.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name, points in by_system.items():
            values = [SCALES.get(measure, 1.0) * getattr(points[at], measure) for at in sorted(points)]
            _line(axes, name, _places(figure, sorted(points)), values)
        _dress(axes, AXES[figure], LABELS[measure], is_logarithmic=measure in LOGARITHMIC)
        if figure in (12, 13):
            ats = sorted({at for points in by_system.values() for at in points})
            axes.set_xticks(range(len(ats)), [f"{at:g}" for at in ats])
    return _save(picture, folder / f"figure{figure}", TITLES[figure])


def _places(figure: int, ats: Sequence[float]) -> list[float]:
    """Doublings are drawn as far apart as each other."""
    return [float(index) for index in range(len(ats))] if figure in (12, 13) else list(ats)


def plot_scales(folder: Path, rate: float, by_system: Mapping[str, Points]) -> Path:
    """Figure 10."""
    picture = new_figure(5.6, 3.3)
    axes = picture.subplots()
    for name, points in by_system.items():
        if rate in points:
            by_scale = points[rate].by_scale
            _line(axes, name, list(by_scale), [100 * share for share in by_scale.values()])
    _dress(axes, "SLO scale", LABELS["attainment"], is_logarithmic=False)
    axes.axvline(5, color="0.8", linewidth=1, zorder=0)
    return _save(picture, folder / "figure10", f"Stricter and looser promises, {rate:g} requests a second")


def _line(axes: Axes, name: str, places: Sequence[float], values: Sequence[float]) -> None:
    is_ours = name == OURS.name
    axes.plot(
        places,
        values,
        color=COLORS[name],
        marker=MARKERS.get(name, "o"),
        markersize=4.5 if is_ours else 3.5,
        linewidth=2.4 if is_ours else 1.3,
        zorder=3 if is_ours else 2,
        label=name,
    )


def _dress(axes: Axes, axis: str, label: str, *, is_logarithmic: bool) -> None:
    if is_logarithmic:
        log_axis(axes)
    else:
        axes.set_ylim(0, 103)
    axes.set(xlabel=axis, title=label)
    tidy(axes)


def _save(picture: Figure, path: Path, title: str) -> Path:
    legend_beside(picture)
    picture.suptitle(title, x=0.01, ha="left", fontsize="large")
    return save(picture, path)
