"""Draws the first panels of a picture on a terminal, with rich alone: no wider than it, and at most 16 lines high."""

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from math import floor, isfinite, log10
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from mesh.show.canvas import GUIDE_PEN, Canvas, symbol
from mesh.show.palette import ON_TERMINAL
from mesh.show.picture import Bars, Curves, Lanes, Look, Panel, Picture, Series, names_of
from mesh.show.words import shortened

LEAST_WIDTH: Final = 36  # of one of several charts beside each other
MOST_WIDTH: Final = 100
HEIGHT: Final = 9  # rows of a field
MOST_LINES: Final = 12  # of bars or lanes
NAME: Final = 18  # characters, at most
AXIS: Final = 7


def print_chart(console: Console, picture: Picture) -> None:
    """Draw as many panels of the picture's first row as there is room for. Tables have no chart."""
    width = min(console.width - 1, MOST_WIDTH)
    drawer = _Drawer(console, picture)
    shown = [panel for panel in picture.panels[: picture.num_columns] if isinstance(panel, Curves)]
    others = [panel for panel in picture.panels if isinstance(panel, Bars | Lanes)]
    if shown and isinstance(picture.panels[0], Curves):
        count = max(1, min(len(shown), width // LEAST_WIDTH))
        room = (width - 2 * (count - 1)) // count
        for lines in zip_longest(*(list(drawer.curves(panel, room)) for panel in shown[:count]), fillvalue=Text()):
            console.print(Text("  ").join(_padded(line, room) for line in lines), no_wrap=True, crop=True)
        for line in drawer.legend(shown[:count], width):
            console.print(line, no_wrap=True, crop=True)
    elif others:
        for line in drawer.rows(others[0], width):
            console.print(line, no_wrap=True, crop=True)


def _padded(line: Text, width: int) -> Text:
    padded = line.copy()
    padded.truncate(width, pad=True)
    return padded


class _Drawer:
    """What all panels of a picture share on one console: letters, colours, and who has which."""

    def __init__(self, console: Console, picture: Picture) -> None:
        self.is_ascii = console.options.ascii_only
        self.has_color = console.color_system is not None and not console.no_color
        self.pens = {name: index for index, name in enumerate(picture.names)}
        self.has_dots = not self.is_ascii and (self.has_color or len(self.pens) <= 1)

    def style(self, pen: int) -> str:
        return ON_TERMINAL[pen % len(ON_TERMINAL)] if pen >= 0 else "red" if pen == GUIDE_PEN else ""

    def words(self, text: str, most: int) -> str:
        """Text in letters that the terminal has."""
        short = shortened(text, most)
        return short.replace("…", "~").encode("ascii", "replace").decode() if self.is_ascii else short

    # --- curves -------------------------------------------------------------------------------------------------------

    def curves(self, panel: Curves, width: int) -> Iterator[Text]:
        is_log_x, is_log_y = panel.is_log or panel.is_log_x, panel.is_log
        shown = [curve for curve in panel.curves if curve.look is not Look.GUIDE]
        across = _Scale(
            [value for curve in shown for value in curve.x] + [one.at for one in panel.limits if one.is_upright],
            panel.x_range,
            is_log_x,
        )
        up = _Scale(
            [value for curve in shown for value in curve.y] + [one.at for one in panel.limits if not one.is_upright],
            panel.y_range,
            is_log_y,
        )
        canvas = Canvas(width - AXIS - 1, HEIGHT, self.has_dots, self.is_ascii)
        for curve in shown:
            self._draw(canvas, curve, across, up)
        for limit in panel.limits:
            scale = across if limit.is_upright else up
            canvas.guide(scale.place(limit.at), is_upright=limit.is_upright)
        yield Text(self.words(f"{panel.title}; {panel.y_label}" if panel.y_label else panel.title, width), "bold")
        bar = "|" if self.is_ascii else "│"
        for row in range(HEIGHT):
            label = (
                up.label(1.0)
                if row == 0
                else up.label(0.0)
                if row == HEIGHT - 1
                else up.label(0.5)
                if row == HEIGHT // 2
                else ""
            )
            yield Text.assemble((f"{label:>{AXIS}}", "dim"), (bar, "dim"), *self._runs(canvas.row(row)))
        yield Text(self._axis(across, panel.x_label, width), "dim")

    def _draw(self, canvas: Canvas, curve: Series, across: "_Scale", up: "_Scale") -> None:
        points = [(across.place(x), up.place(y)) for x, y in zip(curve.x, curve.y, strict=True)]
        pen = self.pens[curve.name]
        for x, y in points:
            canvas.dot(x, y, pen)
        if curve.look is not Look.POINTS:
            canvas.line(points, pen)

    def _runs(self, row: Sequence[tuple[str, int]]) -> Iterator[tuple[str, str]]:
        for pen, letters in groupby(row, key=lambda one: one[1]):
            yield "".join(letter for letter, _ in letters), self.style(pen)

    def _axis(self, across: "_Scale", label: str, width: int) -> str:
        left, right = across.label(0.0), across.label(1.0)
        room = width - AXIS - 1 - len(left) - len(right)
        return " " * (AXIS + 1) + left + self.words(label, max(3, room - 2)).center(room) + right

    def legend(self, panels: Sequence[Panel], width: int) -> Iterator[Text]:
        """Names that have a colour, and what the guides are."""
        names = list(dict.fromkeys(name for panel in panels for name in names_of(panel)))
        is_block = not any(isinstance(panel, Curves) for panel in panels)
        parts = [
            Text.assemble(
                (self._key(self.pens[name], is_block=is_block), self.style(self.pens[name])), " ", self.words(name, 40)
            )
            for name in names
        ]
        shown = parts if len(parts) > 1 else []
        limits = [limit for panel in panels if isinstance(panel, Curves | Lanes) for limit in panel.limits]
        for limit in limits:
            mark = ("|" if self.is_ascii else "┊") if limit.is_upright else ("-" if self.is_ascii else "┄")
            shown.append(Text.assemble((mark, "red"), " ", self.words(limit.words, 40)))
        yield from _flowing(shown, width)

    def _key(self, pen: int, *, is_block: bool) -> str:
        if is_block:
            return self._block(pen)
        return "⣿" if self.has_dots else symbol(pen, is_ascii=self.is_ascii)

    def _block(self, pen: int) -> str:
        return "█" if self.has_color and not self.is_ascii else symbol(pen, is_ascii=self.is_ascii)

    # --- bars and lanes -----------------------------------------------------------------------------------------------

    def rows(self, panel: Bars | Lanes, width: int) -> Iterator[Text]:
        yield Text(self.words(panel.title, width), "bold")
        yield from self._bars(panel, width) if isinstance(panel, Bars) else self._lanes(panel, width)
        yield from self.legend([panel], width)

    def _bars(self, panel: Bars, width: int) -> Iterator[Text]:
        values = [
            value for series in panel.series.values() for value in series if value is not None and isfinite(value)
        ]
        longest = panel.x_range[1] or max(values, default=1.0) or 1.0
        name_width = min(NAME, max(map(cell_len, panel.names), default=1))
        room = width - name_width - 10
        lines = [
            (name, series, values[index])
            for index, name in enumerate(panel.names)
            for series, values in panel.series.items()
        ]
        for number, (name, series, value) in enumerate(lines[:MOST_LINES]):
            pen = self.pens[series]
            block = self._block(pen)
            bar = block * round(room * min(1.0, max(0.0, value or 0.0) / longest))
            shown = name if number % len(panel.series) == 0 else ""
            told = "-" if value is None else f"{value:.3g}"
            yield Text.assemble(
                f"{set_cell_size(self.words(shown, name_width), name_width)} ", (bar, self.style(pen)), f" {told}"
            )
        if len(lines) > MOST_LINES:
            yield Text(f"and {len(lines) - MOST_LINES} more", "dim")
        yield Text(self.words(panel.x_label, width), "dim")

    def _lanes(self, panel: Lanes, width: int) -> Iterator[Text]:
        ends = (
            *(span.end for span in panel.spans),
            *(flag.at for flag in panel.flags),
            *(one.at for one in panel.limits),
        )
        scale = _Scale(ends, (0, None), is_log=False)
        name_width = min(NAME, max(map(cell_len, panel.lanes), default=1))
        room = width - name_width - 1
        for lane in panel.lanes[:MOST_LINES]:
            letters = [(" ", "")] * room
            for limit in panel.limits:
                letters[_column(scale, limit.at, room)] = ("|" if self.is_ascii else "┊", "red")
            for span in (one for one in panel.spans if one.lane == lane):
                pen = self.pens[span.name]
                block = self._block(pen)
                for column in range(_column(scale, span.start, room), _column(scale, span.end, room) + 1):
                    letters[column] = (block, self.style(pen))
            for flag in (one for one in panel.flags if one.lane == lane):
                letters[_column(scale, flag.at, room)] = ("!" if self.is_ascii else "◆", "bold")
            yield Text.assemble(f"{set_cell_size(self.words(lane, name_width), name_width)} ", *letters)
        if len(panel.lanes) > MOST_LINES:
            yield Text(f"and {len(panel.lanes) - MOST_LINES} more", "dim")
        left, right = scale.label(0.0), scale.label(1.0)
        middle = self.words(panel.x_label, 30).center(max(1, room - len(left) - len(right)))
        yield Text(f"{' ' * (name_width + 1)}{left}{middle}{right}", "dim")


def _column(scale: "_Scale", at: float, room: int) -> int:
    return min(room - 1, max(0, int(room * scale.place(at))))


def _flowing(parts: Sequence[Text], width: int) -> Iterator[Text]:
    """Parts one after the other, in as many lines as they take."""
    line = Text()
    for part in parts:
        if line and line.cell_len + 3 + part.cell_len > width:
            yield line
            line = Text()
        line = Text.assemble(line, "   ", part) if line else part
    if line:
        yield line


class _Scale:
    """Maps values to places from 0 to 1."""

    def __init__(self, values: Sequence[float], bounds: tuple[float | None, float | None], is_log: bool) -> None:
        known = [value for value in values if isfinite(value) and not (is_log and value <= 0)]
        low, high = bounds
        self.is_log = is_log
        self.low = min(known, default=1.0) if low is None or (is_log and not low) else low
        self.high = max(known, default=self.low + 1.0) if high is None else high
        if self.high <= self.low:
            self.high = self.low + (abs(self.low) or 1.0)

    def place(self, value: float) -> float:
        if not self.is_log:
            return (value - self.low) / (self.high - self.low)
        return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low)) if value > 0 else -1.0

    def label(self, place: float) -> str:
        value = self.low * (self.high / self.low) ** place if self.is_log else self.low + place * (self.high - self.low)
        return number(value)


def number(value: float) -> str:
    """Write a number in at most six characters."""
    if value == 0 or not isfinite(value):
        return "0" if value == 0 else "-"
    size = floor(log10(abs(value)))
    if size >= 5 or size < -3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:.{max(0, 2 - max(size, 0))}f}".rstrip("0").rstrip(".") if size < 2 else f"{value:.0f}"
