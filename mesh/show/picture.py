"""Describes pictures as data. `figures` draws them into files, `pages` puts them on pages, `charts` on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mesh.show.words import shortened

MOST_LETTERS: Final = 60  # of a name

Range = tuple[float | None, float | None]  # None: as far as there is something to see


class Look(StrEnum):
    """How the points of a curve appear."""

    LINE = "line"
    MARKED = "line through marked points"
    POINTS = "points"
    DOTTED = "dotted line"
    GUIDE = "faint line beside the others"


@dataclass(frozen=True, slots=True)
class Series:
    """A curve of points, in order. NaN in ``y`` is a gap. ``low`` and ``high``, as long as it, are a band around it.

    Curves of one name have one colour in the whole picture, and one entry in its legend.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: Look = Look.LINE


@dataclass(frozen=True, slots=True)
class Limit:
    """A line across a panel, such as a promise, with words beside it. ``is_upright``: at an x, else at a y."""

    at: float
    words: str
    is_upright: bool = True


@dataclass(frozen=True, slots=True)
class Spot:
    """One marked point and what it is."""

    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True)
class Curves:
    """A panel with axes."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Series]
    limits: Sequence[Limit] = ()
    spots: Sequence[Spot] = ()
    x_range: Range = (0, None)
    y_range: Range = (0, None)
    is_log: bool = False  # both axes; only x with ``is_log_x``
    is_log_x: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel with a bar for each series at each name. None: there is no figure."""

    title: str
    x_label: str
    names: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    limits: Sequence[Limit] = ()
    x_range: Range = (0, None)


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """Something that went on in a lane. Spans of one name have one colour."""

    lane: str
    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that happened in a lane at one moment."""

    lane: str
    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """A panel with time from left to right and one row a lane, the first one on top."""

    title: str
    x_label: str
    lanes: Sequence[str]
    spans: Sequence[LaneSpan]
    flags: Sequence[Flag] = ()
    limits: Sequence[Limit] = ()


@dataclass(frozen=True, slots=True)
class GridCell:
    """Names that have colours, and what is said of them. ``is_marked``: it differs from the others of its row."""

    names: Sequence[str]
    words: str = ""
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Cells:
    """A panel with a row for each key, and as many cells in each as there are columns."""

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[GridCell]]


Panel = Curves | Bars | Lanes | Cells


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels beside each other, ``num_columns`` in a row."""

    title: str
    panels: Sequence[Panel]
    num_columns: int = 2

    @property
    def names(self) -> list[str]:
        """What has a colour, in the order in which it appears first."""
        return list(dict.fromkeys(name for panel in self.panels for name in names_of(panel)))


def names_of(panel: Panel) -> Iterator[str]:
    """Names in a panel that have a colour and an entry in the legend."""
    match panel:
        case Curves(curves=curves):
            yield from (curve.name for curve in curves if curve.look is not Look.GUIDE)
        case Bars(series=series):
            yield from series
        case Lanes(spans=spans):
            yield from (span.name for span in spans)
        case Cells(rows=rows):
            yield from (name for cells in rows.values() for cell in cells for name in cell.names)


def label_of(name: str) -> str:
    """A name for a legend, which would leave out what begins with an underscore."""
    return shortened(f" {name}" if name.startswith("_") or not name else name, MOST_LETTERS)
