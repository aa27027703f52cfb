"""A timeline as a picture: a lane for each engine. Needs matplotlib."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from mesh.show.figures import bytes_of
from simulation.reports.timeline import Activity, Lane, Timeline

WIDTH = 12.0  # inches
MAX_COLUMNS = 1200  # about as many as there are pixels
MAX_COLUMNS_OF_MANY = 450  # calmer, where lanes are low
BAND, GAP = 0.54, 0.10  # of a lane: what it computes; and what divides it from the next; the lines lie between
FEW_ENGINES = 12

COLORS = {
    Activity.PREFILL: "#e8a33d",
    Activity.MIXED: "#a05195",
    Activity.DECODE: "#5b9bd0",
    Activity.HUNG: "#c9c9c9",
    Activity.DOWN: "#4a4a4a",
}
LABELS = {
    Activity.PREFILL: "prefill chunks",
    Activity.MIXED: "prefill and decode",
    Activity.DECODE: "decode",
    Activity.HUNG: "hung",
    Activity.DOWN: "down",
}
IDLE = "#f1f1f1"
BATCH, KV = "#222222", "#c0392b"
MARKS = {
    "killed": ("X", "#d62728"),
    "restarted": ("^", "#2ca02c"),
    "hung": ("s", "#7f7f7f"),
    "slowed down": ("<", "#7f7f7f"),
    "as fast as before": (">", "#2ca02c"),
    "cut off": ("D", "#e377c2"),
    "reached again": ("o", "#2ca02c"),
    "prefill": ("v", COLORS[Activity.PREFILL]),
    "decode": ("v", COLORS[Activity.DECODE]),
    "multiplex": ("v", COLORS[Activity.MIXED]),
    "loaded": ("P", "#2ca02c"),
    "unloaded": ("p", "#7f7f7f"),
}
ROLES = ("prefill", "decode", "multiplex")

Values = np.ndarray[Any, np.dtype[np.float64]]


def plot_timeline(path: Path, timeline: Timeline, title: str) -> None:
    """One lane an engine: the share of the time that each activity takes, batch size and KV use, marks."""
    columns = _Columns(timeline)
    num_lanes = len(timeline.lanes)
    height = 1.5 + num_lanes * (0.78 if num_lanes <= FEW_ENGINES else 0.34)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    largest = max((columns.batch(lane).max() for lane in timeline.lanes.values()), default=0.0) or 1.0
    for row, lane in enumerate(timeline.lanes.values()):
        _plot_lane(axes, columns, lane, num_lanes - 1 - row, largest)
    _label(axes, timeline)
    handles = _legend(timeline, largest)
    style = {"frameon": False, "fontsize": 8.5, "title": title, "title_fontsize": 11, "alignment": "left"}
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles) // 2, **style)
    path.write_bytes(bytes_of(figure))


class _Columns:
    """The bins of all lanes, joined to as many columns as can be told apart."""

    def __init__(self, timeline: Timeline) -> None:
        bin_s = timeline.align()
        num_bins = max(1, int(np.ceil((timeline.end_s - timeline.origin_s) / bin_s)))
        most = MAX_COLUMNS if len(timeline.lanes) <= FEW_ENGINES else MAX_COLUMNS_OF_MANY
        self._joined = -(-num_bins // most)
        self._num_columns = -(-num_bins // self._joined)
        self.column_s = bin_s * self._joined
        self.edges = timeline.origin_s + self.column_s * np.arange(self._num_columns + 1)

    def shares(self, lane: Lane, activity: Activity) -> Values:
        return np.minimum(self._means(lane.seconds[activity]), 1.0)

    def batch(self, lane: Lane) -> Values:
        """Mean size while it computes."""
        busy = sum(self._means(lane.seconds[activity]) for activity in Activity if activity < Activity.HUNG)
        return np.divide(self._means(lane.batch_s), busy, out=np.zeros(self._num_columns), where=busy > 1e-6)

    def kv(self, lane: Lane) -> Values:
        return np.minimum(self._means(lane.kv_s), 1.0)

    def _means(self, bins: "np.typing.ArrayLike") -> Values:
        values = np.zeros(self._num_columns * self._joined)
        used = np.asarray(bins)[: len(values)]
        values[: len(used)] = used
        means: Values = values.reshape(self._num_columns, self._joined).sum(axis=1) / self.column_s
        return means


def _plot_lane(axes: Axes, columns: _Columns, lane: Lane, row: int, largest: float) -> None:
    edges, start, end = columns.edges, columns.edges[0], columns.edges[-1]
    axes.fill_between([start, end], row, row + BAND, color=IDLE, linewidth=0)
    below = np.zeros(len(edges) - 1)
    for activity in Activity:
        above = np.minimum(below + columns.shares(lane, activity), 1.0)
        if (above > below).any():
            bottom, top = (row + BAND * np.append(level, level[-1]) for level in (below, above))
            axes.fill_between(edges, bottom, top, step="post", color=COLORS[activity], linewidth=0)
        below = above
    room = 1.0 - BAND - GAP
    middles = (edges[:-1] + edges[1:]) / 2
    axes.plot([start, end], [row + BAND] * 2, color="#cccccc", linewidth=0.5)
    for values, color in ((columns.kv(lane), KV), (columns.batch(lane) / largest, BATCH)):
        axes.plot(middles, row + BAND + room * values, color=color, linewidth=0.8, solid_joinstyle="round")
    for mark in lane.marks:
        marker, color = MARKS[mark.event]
        axes.plot(
            mark.at_s, row + BAND, marker=marker, color=color, markersize=6, markeredgecolor="white", clip_on=False
        )


def _label(axes: Axes, timeline: Timeline) -> None:
    num_lanes = len(timeline.lanes)
    names = [f"{engine}\n{timeline.roles[engine]}" for engine in timeline.lanes]
    if num_lanes > FEW_ENGINES:
        names = list(timeline.lanes)
    axes.set_yticks([num_lanes - 1 - row + BAND / 2 for row in range(num_lanes)], names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, max(timeline.end_s, 1e-3)), ylim=(-GAP, num_lanes), xlabel="time, s")
    axes.xaxis.set_major_locator(MaxNLocator(12))
    axes.spines[["top", "right", "left"]].set_visible(False)


def _legend(timeline: Timeline, largest: float) -> list[Artist]:
    lanes = timeline.lanes.values()
    seen = [activity for activity in Activity if any(sum(lane.seconds[activity]) > 0 for lane in lanes)]
    bands = [Patch(color=COLORS[activity], label=LABELS[activity]) for activity in seen]
    lines = [
        Line2D([], [], color=BATCH, linewidth=1, label=f"batch size, 0 to {largest:.0f}"),
        Line2D([], [], color=KV, linewidth=1, label="KV blocks in use, 0 to 100 %"),
    ]
    happened = {mark.event for lane in lanes for mark in lane.marks}
    marks = [
        Line2D([], [], color=color, marker=marker, linestyle="", markeredgecolor="white", label=_words(event))
        for event, (marker, color) in MARKS.items()
        if event in happened
    ]
    bands.append(Patch(facecolor=IDLE, edgecolor="#bbbbbb", linewidth=0.5, label="idle"))
    return _in_rows(bands, [*lines, *marks])


def _in_rows(upper: Sequence[Artist], lower: Sequence[Artist]) -> list[Artist]:
    """As legends take them: column by column."""
    nothing = Line2D([], [], linestyle="", label=" ")
    pairs = zip_longest(upper, lower, fillvalue=nothing)
    return [handle for pair in pairs for handle in pair]


def _words(event: str) -> str:
    return f"becomes {event}" if event in ROLES else event
