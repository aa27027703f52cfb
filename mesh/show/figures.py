"""Draws pictures with matplotlib, which the extra ``bench`` brings and which is loaded when the first one is drawn."""

import importlib.util
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import UserError
from mesh.show.palette import INK, PAPER, color, css, with_names
from mesh.show.picture import MOST_LETTERS, Bars, Cells, Curves, Lanes, Panel, Picture, label_of, names_of
from mesh.show.words import plain, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: Final = (".svg", ".png")
DPI: Final = 150
MISSING: Final = "needs matplotlib, which is not installed; pip install 'meshserve[bench]' brings it"
# Words stay words and are no formulas, and the same picture gives the same bytes.
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.hashsalt": "meshserve",
    "text.parse_math": False,
}
WIDTH: Final = 9.6  # inches, of a picture
CURVES: Final = 2.9  # inches, of axes
LINE: Final = 0.3  # inches, of a bar, a lane or a row of cells
MOST_NAMES: Final = 24  # in a legend


def has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib(option: str) -> None:
    """Raise `UserError` if pictures cannot be drawn. ``option`` asked for one."""
    if not has_matplotlib():
        raise UserError(f"{option}: {MISSING}")


def write_picture(path: Path, picture: Picture) -> None:
    """As SVG or PNG, by the suffix. Raise `OSError` if it cannot be written."""
    if path.suffix.lower() == ".png":
        path.write_bytes(png_of(picture))
    else:
        path.write_text(svg_of(picture), encoding="utf-8")


def svg_of(picture: Picture) -> str:
    """A document whose colours follow the reader's light or dark setting."""
    return document_of(_figure(picture), picture.title)


def element_of(picture: Picture, number: int = 0) -> str:
    """Make the element for a page, without the document around it. ``number``: of the pictures that are on it."""
    element = _element(_figure(picture), picture.title)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>n{number}", element)


def png_of(picture: Picture) -> bytes:
    return bytes_of(_figure(picture))


def bytes_of(figure: "Figure") -> bytes:
    """Make the PNG of a figure."""
    file = io.BytesIO()
    with drawing():
        figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def document_of(figure: "Figure", title: str) -> str:
    """Make the SVG document of a figure, named for readers who cannot see it."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n{_element(figure, title)}\n'


def _element(figure: "Figure", title: str) -> str:
    file = io.StringIO()
    with drawing():
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    _, _, text = file.getvalue().partition("<svg")
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # nobody refers to them, and ids must be unique in a page
    head, end, rest = f"<svg{with_names(text)}".partition(">")
    head = re.sub(r' (?:width|height)="[^"]*"', _without_pt, head)
    label = f"<title>{_escaped(title)}</title><style>{css()}</style>"
    return "\n".join(line.rstrip() for line in f'{head} role="img"{end}{label}{rest}'.strip().splitlines())


def _without_pt(match: "re.Match[str]") -> str:
    """Pixels: a browser would take points for larger ones."""
    return match[0].replace("pt", "")


def _escaped(text: str) -> str:
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the common style. Letters that no font here has are drawn by the reader's."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure on the common paper. Sizes are inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)


def _figure(picture: Picture) -> "Figure":
    from mesh.show import panels

    columns = min(picture.num_columns, len(picture.panels))
    rows = [picture.panels[start : start + columns] for start in range(0, len(picture.panels), columns)]
    heights = [max(map(_height, row)) for row in rows]
    colors = {name: color(index) for index, name in enumerate(picture.names)}
    legend = _legend_names(picture)
    with drawing():
        figure = new_figure(WIDTH, sum(heights) + 0.45 + 0.25 * bool(legend))
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes, panel in zip(axes_row, row, strict=False):
                panels.draw(axes, panel, colors)
            for axes in axes_row[len(row) :]:
                axes.set_visible(False)
        figure.suptitle(shortened(picture.title, 2 * MOST_LETTERS), color=INK, fontsize=11)
        _explain(figure, legend, colors)
    return figure


def _height(panel: Panel) -> float:
    match panel:
        case Curves():
            return CURVES
        case Bars(names=names, series=series):
            return 0.9 + LINE * len(names) * (0.4 + 0.6 * len(series))
        case Lanes(lanes=lanes):
            return 1.1 + 1.2 * LINE * len(lanes)
        case Cells(rows=rows):
            return 0.7 + 1.2 * LINE * len(rows)


def _legend_names(picture: Picture) -> list[str]:
    """What is not said by a word in its place. A single curve is named by its axis."""
    named = dict.fromkeys(name for panel in picture.panels if not isinstance(panel, Cells) for name in names_of(panel))
    return list(named)[:MOST_NAMES] if len(named) > 1 else []


def _explain(figure: "Figure", names: list[str], colors: Mapping[str, str]) -> None:
    """One legend for all panels."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(str(label), handle)
    shown = [(handles[key], label_of(name)) for name in names if (key := label_of(name)) in handles]
    if shown:
        taken, labels = zip(*shown, strict=True)
        columns = max(1, min(len(labels), int(110 / (6 + max(map(len, labels))))))
        place: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "labelcolor": INK, "fontsize": 8.5}
        figure.legend(taken, labels, ncols=columns, **place)
