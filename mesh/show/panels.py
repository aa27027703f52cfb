"""Draws one panel of a picture on the axes of matplotlib."""

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from mesh.show.palette import DASHES, FAINT, GRID, INK, MARKERS, PAPER, PROMISE
from mesh.show.picture import (
    MOST_LETTERS,
    Bars,
    Cells,
    Curves,
    Flag,
    GridCell,
    Lanes,
    Limit,
    Look,
    Panel,
    Series,
    label_of,
)
from mesh.show.words import shortened

Colors = Mapping[str, str]
SMALL: Final = 8
FEW_POINTS: Final = 40  # each of which may have a marker
LANE_LETTERS: Final = 22
NEAR: Final = 0.3  # of the width: words beside each other would touch


def draw(axes: Axes, panel: Panel, colors: Colors) -> None:
    """Draw the panel with these colours by name."""
    axes.set_facecolor(PAPER)
    axes.tick_params(which="both", colors=INK, length=0, labelsize=SMALL)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_axisbelow(True)
    axes.set_title(shortened(panel.title, MOST_LETTERS), color=INK, fontsize=9.5)
    match panel:
        case Curves():
            _draw_curves(axes, panel, colors)
        case Bars():
            _draw_bars(axes, panel, colors)
        case Lanes():
            _draw_lanes(axes, panel, colors)
        case Cells():
            _draw_cells(axes, panel, colors)


# --- curves -----------------------------------------------------------------------------------------------------------


def _draw_curves(axes: Axes, panel: Curves, colors: Colors) -> None:
    axes.grid(color=GRID, linewidth=0.7)
    for curve in panel.curves:
        _draw_curve(
            axes, curve, colors.get(curve.name, FAINT), list(colors).index(curve.name) if curve.name in colors else 0
        )
    for limit in panel.limits:
        _draw_limit(axes, limit)
    axes.set_xlabel(panel.x_label, color=INK)
    axes.set_ylabel(panel.y_label, color=INK)
    if panel.is_log:
        _spread(axes, "y")
    if panel.is_log or panel.is_log_x:
        _spread(axes, "x")
    axes.set_xlim(*_bounds(panel.x_range, is_log=panel.is_log or panel.is_log_x))
    axes.set_ylim(*_bounds(panel.y_range, is_log=panel.is_log))
    for limit in panel.limits:
        _name_limit(axes, limit)
    for spot in panel.spots:
        _draw_spot(axes, spot.x, spot.y, spot.words)


def _bounds(bounds: tuple[float | None, float | None], *, is_log: bool) -> tuple[float | None, float | None]:
    """A linear axis has a little room above its end."""
    low, high = bounds
    return (None if is_log and not low else low), (high if high is None or is_log else 1.03 * high)


def _spread(axes: Axes, which: str) -> None:
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_curve(axes: Axes, curve: Series, color: str, number: int) -> None:
    label = label_of(curve.name)
    if curve.low and curve.high:
        low, high = ([nan if value is None else value for value in side] for side in (curve.low, curve.high))
        axes.fill_between(curve.x, low, high, color=color, alpha=0.18, linewidth=0)
    marker = MARKERS[number % len(MARKERS)]
    style: dict[str, Any] = {"color": color, "linewidth": 1.6, "label": label}
    match curve.look:
        case Look.LINE:
            style["linestyle"] = DASHES[number % len(DASHES)]
        case Look.MARKED:
            style |= {"marker": marker, "markersize": 4.5 if len(curve.x) <= FEW_POINTS else 2.5}
        case Look.POINTS:
            style |= {"marker": marker, "markersize": 4, "linestyle": "", "alpha": 0.75, "markeredgewidth": 0}
        case Look.DOTTED:
            style |= {"linestyle": ":", "label": f"_{label}"}
        case Look.GUIDE:
            style = {"color": FAINT, "linewidth": 0.9, "linestyle": "--"}
    axes.plot(curve.x, curve.y, **style)


def _draw_limit(axes: Axes, limit: Limit) -> None:
    """Axes reach as far as their limits, unless they have a range of their own."""
    style: dict[str, Any] = {"color": PROMISE, "linewidth": 1.1, "linestyle": (0, (5, 2.5))}
    (axes.axvline if limit.is_upright else axes.axhline)(limit.at, **style)


def _name_limit(axes: Axes, limit: Limit, *, is_above: bool = False) -> None:
    """The words of an upright one are at its foot, or on its head with ``is_above``, where bars are in the way. The
    range of the axes is known by now.
    """
    if limit.is_upright:
        is_right = axes.transAxes.inverted().transform(axes.transData.transform((limit.at, 1.0)))[0] > 0.6
        place, away = (limit.at, 1.0 if is_above else 0.0), (-4 if is_right else 4, -2 if is_above else 4)
        upright = "top" if is_above else "bottom"
        _say(axes, limit.words, place, away, is_right, upright, ("data", "axes fraction"), PROMISE)
    else:
        _say(axes, limit.words, (1.0, limit.at), (-2, -3), True, "top", ("axes fraction", "data"), PROMISE)


def _draw_spot(axes: Axes, x: float, y: float, words: str) -> None:
    ring: dict[str, Any] = {"markersize": 11, "markerfacecolor": "none", "markeredgecolor": INK, "markeredgewidth": 1.4}
    axes.plot([x], [y], marker="o", zorder=5, **ring)
    low, high = axes.get_xlim()
    is_right = x > low + 0.6 * (high - low)
    if not words:
        return
    _say(axes, words, (x, y), (-9 if is_right else 9, -9), is_right, "top", ("data", "data"), INK)


def _say(
    axes: Axes,
    words: str,
    place: tuple[float, float],
    away: tuple[float, float],
    ends_there: bool,
    upright: str,
    units: tuple[str, str],
    ink: str,
) -> None:
    """Write ``words`` so many points ``away`` from a place."""
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.8}
    side = "right" if ends_there else "left"
    style: dict[str, Any] = {"ha": side, "va": upright, "color": ink, "fontsize": SMALL, "bbox": paper, "zorder": 6}
    units_of: Any = units
    axes.annotate(
        shortened(words, MOST_LETTERS),
        place,
        xytext=away,
        xycoords=units_of,
        textcoords="offset points",
        annotation_clip=True,
        in_layout=False,
        **style,
    )


# --- bars -------------------------------------------------------------------------------------------------------------


def _draw_bars(axes: Axes, panel: Bars, colors: Colors) -> None:
    axes.grid(color=GRID, linewidth=0.7, axis="x")
    thickness = 0.8 / max(1, len(panel.series))
    for index, (name, values) in enumerate(panel.series.items()):
        places = [place + (index - (len(panel.series) - 1) / 2) * thickness for place in range(len(values))]
        known = [value if value is not None and isfinite(value) else 0.0 for value in values]
        bars = axes.barh(places, known, 0.9 * thickness, color=colors[name], label=label_of(name))
        words = ["-" if value is None else f"{value:.3g}" for value in values]
        axes.bar_label(bars, words, padding=3, fontsize=SMALL, color=INK)
    axes.set_yticks(range(len(panel.names)), [shortened(name, LANE_LETTERS) for name in panel.names])
    axes.set_xlabel(panel.x_label, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    low, high = panel.x_range
    axes.set_xlim(low, None if high is None else 1.14 * high)
    axes.set_ylim(len(panel.names) - 0.5, -0.8 if panel.limits else -0.5)
    for limit in panel.limits:
        _draw_limit(axes, limit)
        _name_limit(axes, limit, is_above=True)


# --- lanes ------------------------------------------------------------------------------------------------------------


def _draw_lanes(axes: Axes, panel: Lanes, colors: Colors) -> None:
    rows = {lane: row for row, lane in enumerate(panel.lanes)}
    axes.grid(color=GRID, linewidth=0.7, axis="x")
    seen: set[str] = set()
    for span in panel.spans:
        label = None if span.name in seen else label_of(span.name)
        seen.add(span.name)
        axes.barh(rows[span.lane], span.end - span.start, 0.52, left=span.start, color=colors[span.name], label=label)
    end = max(
        (
            *(span.end for span in panel.spans),
            *(flag.at for flag in panel.flags),
            *(limit.at for limit in panel.limits),
        ),
        default=1.0,
    )
    axes.set_xlim(0, 1.04 * end or 1.0)
    axes.set_ylim(len(rows) - 0.4, -1.0)
    axes.set_yticks(range(len(rows)), [shortened(lane, LANE_LETTERS) for lane in rows])
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.set_xlabel(panel.x_label, color=INK)
    for limit in panel.limits:
        _draw_limit(axes, limit)
        _name_limit(axes, limit, is_above=True)
    written: dict[str, float] = {}
    for flag in sorted(panel.flags, key=lambda one: one.at):
        is_below = flag.at - written.get(flag.lane, -end) < NEAR * end
        written[flag.lane] = -end if is_below else flag.at
        _draw_flag(axes, flag, rows[flag.lane], end, is_below=is_below)


def _draw_flag(axes: Axes, flag: Flag, row: int, end: float, *, is_below: bool) -> None:
    """``is_below``: another one's words are above."""
    axes.plot([flag.at], [row], marker="D", markersize=5, color=INK, markeredgecolor=PAPER, zorder=5)
    is_right = flag.at > 0.6 * end
    axes.annotate(
        shortened(flag.words, MOST_LETTERS),
        (flag.at, row),
        xytext=(-2 if is_right else 2, -8 if is_below else 8),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="top" if is_below else "bottom",
        color=INK,
        fontsize=SMALL - 1,
    )


# --- cells ------------------------------------------------------------------------------------------------------------


def _draw_cells(axes: Axes, panel: Cells, colors: Colors) -> None:
    axes.set_xlim(0, len(panel.columns))
    axes.set_ylim(len(panel.rows), 0)
    axes.set_yticks(
        [row + 0.5 for row in range(len(panel.rows))], [shortened(name, LANE_LETTERS) for name in panel.rows]
    )
    axes.set_xticks([column + 0.5 for column in range(len(panel.columns))], panel.columns)
    axes.xaxis.tick_top()
    axes.tick_params(which="both", colors=INK, length=0, labelsize=SMALL)
    for row, cells in enumerate(panel.rows.values()):
        for column, cell in enumerate(cells):
            _draw_cell(axes, cell, column, row, colors)


def _draw_cell(axes: Axes, cell: GridCell, column: int, row: int, colors: Colors) -> None:
    names: Sequence[str] = cell.names or ("",)
    room = 0.72 / len(names)
    axes.text(column + 0.03, row + 0.5, shortened(cell.words, 10), color=FAINT, fontsize=SMALL - 1, va="center")
    for index, name in enumerate(names):
        left = column + 0.25 + index * room
        shape = f"round,pad=0,rounding_size={0.1 * room}"
        edge = INK if cell.is_marked else PAPER
        box = FancyBboxPatch(
            (left, row + 0.14),
            room - 0.02,
            0.72,
            shape,
            facecolor=colors.get(name, GRID),
            edgecolor=edge,
            linewidth=1.6,
        )
        axes.add_patch(box)
        words = shortened(name, max(3, round(26 * room))) if name else "nothing"
        axes.text(
            left + room / 2 - 0.01,
            row + 0.5,
            words,
            color=PAPER if name else INK,
            fontsize=SMALL,
            ha="center",
            va="center",
            clip_on=True,
        )
